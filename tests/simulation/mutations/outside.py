"""Guards of what is kept or seen outside: sinks, files, children, terminals, people's options."""

from __future__ import annotations

from tests.simulation.mutations.base import Change, Mutation

NOTES = "tests/faults/test_notes.py::test_no_promise_breaks_whatever_operation_fails"
SINK = "tests/contract/test_sink_walks.py"

OUTSIDE = (
    Mutation(
        "only what a block was about is applied",
        (
            Change(
                "sink/transaction.py", "in applied.add(start, stop)}", "in applied.add(0, stop)}"
            ),
        ),
        tests=(SINK,),
    ),
    Mutation(
        "a sink's rows are of one topology",
        (Change("sink/transaction.py", '"topology": self.topology_id,', '"topology": "t",'),),
        tests=(SINK,),
    ),
    Mutation(
        "a stale owner is refused by the sink",
        (
            Change(
                "sink/transaction.py",
                "            if known.epoch > place.epoch:\n",
                "            if False:\n",
            ),
            Change(
                "sink/transaction.py",
                "    applied = known.applied\n    if known.epoch > place.epoch:\n",
                "    applied = known.applied\n    if False:\n",
            ),
        ),
        note="it is asked before the block and again at its end: both are gone",
        tests=(SINK,),
    ),
    Mutation(
        "a note that cannot be read now is not written over",
        (
            Change(
                "topology/registry_witness.py",
                "            self._unread = True\n",
                "",
            ),
        ),
        tests=(f"{NOTES}[high_water]",),
    ),
    Mutation(
        "keys that cannot be read now are not written over",
        (
            Change(
                "topology/seal.py",
                "        return Seal([key]), _unreadable(path, error)\n",
                "        problem = _unreadable(path, error)\n",
            ),
        ),
        tests=(f"{NOTES}[seals]",),
    ),
    Mutation(
        "an export is on disk before it is behind",
        (
            Change(
                "interop/folder_queue.py",
                "            self._files.sync_file(path)\n",
                "            pass\n",
            ),
        ),
        tests=(f"{NOTES}[exports]",),
    ),
    Mutation(
        "a child of a handler has the system's own signals",
        (
            Change(
                "supervision/forks.py", "    signal.signal(signal.SIGTERM, signal.SIG_DFL)\n", ""
            ),
        ),
        tests=("tests/actors/test_forks.py",),
    ),
    Mutation(
        "signals wait while a process forks",
        (
            Change(
                "supervision/forks.py",
                "    _masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)\n",
                "    _masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, ())\n",
            ),
        ),
        tests=("tests/actors/test_forks.py",),
    ),
    Mutation(
        "a child of a handler that comes back ends",
        (Change("supervision/forks.py", "    if not in_child:\n        return\n", "    return\n"),),
        tests=("tests/actors/test_forks.py",),
    ),
    Mutation(
        "a text column is UTF-8",
        (Change("data/message_form.py", "validate(full=kind not in _SURE)", "validate()"),),
        tests=("tests/unit/test_message_form.py",),
    ),
    Mutation(
        "what could not be opened is opened when that passes",
        (Change("log/log_manager.py", "return passes(self._broken[place])", "return False"),),
        tests=("tests/faults/test_file_walks.py",),
    ),
    Mutation(
        "what is given up is told by its beginning",
        (
            Change(
                "actors/consumer/giving_up.py",
                "failure.error[:GIVEN_UP_CHARS]",
                "failure.error",
            ),
            Change("supervision/restart_rules.py", "if len(text) <= chars_max:", "if True:"),
        ),
        note="the error's text is cut where it is made, and again where it is kept",
        tests=("tests/actors/test_failures_told_briefly.py",),
    ),
    Mutation(
        "JSON that nests too deeply is no JSON",
        (Change("codec.py", "    except RecursionError:\n", "    except ZeroDivisionError:\n"),),
        tests=("tests/unit/test_codecs.py", "tests/unit/test_source_records.py"),
    ),
    Mutation(
        "files are for their owner alone",
        (Change("files.py", "FILE_MODE = 0o600", "FILE_MODE = 0o644"),),
        tests=("tests/unit/test_log_mends.py",),
    ),
    Mutation(
        "no password of a source stands in the registry",
        (
            Change(
                "config/queue_options.py",
                "if source is not None and without_secrets(source) != source:",
                "if False:",
            ),
        ),
        tests=("tests/unit/test_sources.py",),
    ),
    Mutation(
        "what comes from messages cannot command a terminal",
        (Change("status/harmless.py", "return text.translate(_ONE_LINE)", "return text"),),
        tests=("tests/unit/test_harmless.py",),
    ),
    Mutation(
        "a weight is finite and above 0",
        (
            Change(
                "group/event_checks.py",
                "if not (math.isfinite(weight) and weight > 0):",
                "if False:",
            ),
        ),
        tests=("tests/unit/test_door.py",),
    ),
    Mutation(
        "every request of the page asks for the token",
        (
            Change(
                "dashboard/server.py",
                "if not hmac.compare_digest(given.encode",
                "if given and not hmac.compare_digest(given.encode",
            ),
        ),
        tests=("tests/unit/test_dashboard.py",),
    ),
    Mutation(
        "only the page itself can act",
        (
            Change(
                "dashboard/server.py",
                'if request.method != "GET" and OWN_HEADER not in request.headers:',
                "if False:",
            ),
        ),
        tests=("tests/unit/test_dashboard.py",),
    ),
    Mutation(
        "a seal is for one place",
        (
            Change(
                "topology/seal.py",
                'said = b"\\x00".join((place.encode(errors="surrogatepass"), ',
                'said = b"\\x00".join((b"", ',
            ),
        ),
        tests=("tests/unit/test_seal.py",),
    ),
    Mutation(
        "what bears no seal of ours is not ours",
        (
            Change(
                "topology/seal.py",
                "return text, False",
                "return text, True",
            ),
        ),
        tests=("tests/unit/test_seal.py",),
    ),
)
