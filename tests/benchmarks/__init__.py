"""Every figure that the README quotes: `make -s bench ONLY=<group or figure, comma separated>`.

A group's figures stand in modules `bench_<group>.py` or `bench_<group>_<what>.py`, and are named
`<group>.<what>_<unit>`. See `harness` for how to write one.
"""
