"""A driver on a host, in a test's hand: reads one request a line, answers one line.

{"act": "status", "with": {"name": "t"}}  ->  {"answer": ...} or {"error": "NotFound: ..."}
"""

from __future__ import annotations

import json
import os
import sys
import traceback

from tests.hosts.inside import acts
from tests.hosts.inside.connecting import connect


def main() -> None:
    """Answer until the input ends. Nothing else is written to the output."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    connect()
    print('{"answer": "up"}', file=out, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = {"answer": getattr(acts, request["act"])(**request["with"])}
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=out, flush=True)


if __name__ == "__main__":
    main()
