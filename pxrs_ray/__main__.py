"""`python -m pxrs_ray`: the command line where the `pxrs` script is not on the path."""

from __future__ import annotations

from pxrs_ray.cli import main

if __name__ == "__main__":
    main()
