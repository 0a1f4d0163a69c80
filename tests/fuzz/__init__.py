"""Random bytes at every door: see `tests.fuzz.doors`; `python -m tests.fuzz --minutes 60`."""
