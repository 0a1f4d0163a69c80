"""Where this folder is on PYTHONPATH, Python begins the processes that Ray starts in another way.

A program of Ray's has loaded Ray before its first statement: most of what a worker takes to start.
So it has itself run by a fork of a process that has loaded it. Every other Python goes on as ever,
and so does this one where there is no such process: it begins one, for those that come after it.
"""

from __future__ import annotations

import sys

PROGRAMS = (
    "/ray/_private/workers/default_worker.py",
    "/ray/_private/log_monitor.py",
    "/ray/_private/runtime_env/agent/main.py",
    "/ray/autoscaler/_private/monitor.py",
    "/ray/dashboard/agent.py",
    "/ray/dashboard/dashboard.py",
)

_words = sys.orig_argv
_at = next((at for at, word in enumerate(_words) if at and not word.startswith("-")), 0)
if _words[_at].endswith(PROGRAMS):
    import warm_start

    warm_start.begin(_words, _at)
