"""Guards of producers: retries, giving up, coming back, forms and limits, tenants, clocks."""

from __future__ import annotations

from tests.simulation.mutations.base import Change, Mutation


def _unit(guard: str, file: str, text: str, instead: str, *tests: str) -> Mutation:
    return Mutation(
        guard, (Change(file, text, instead),), tests=tuple(f"tests/unit/{test}" for test in tests)
    )


GIVING_UP = "test_sender_giving_up.py"
COMES_BACK = "test_producer_comes_back.py"
FORM = "test_message_form.py"

PRODUCING = (
    Mutation(
        "frames keep their numbers until the log tells of a hole",
        (
            Change(
                "producer/sender.py",
                "        pending.doubt = True\n        self._settle(pending, frame, error)",
                "        pending.hole, pending.heard = True, None\n"
                "        self._settle(pending, frame, error)",
            ),
            Change(
                "log/producer_state.py",
                "if header.follows is not None and header.follows != stands:",
                "if False:",
            ),
        ),
        note="what the new epoch follows stands behind it: both are gone",
        tests=(f"tests/unit/{GIVING_UP}",),
    ),
    _unit(
        "where many single messages come batches gather, and nowhere else",
        "producer/accumulator.py",
        "min(self._closed_messages // MANY_PER_MS, MANY_REST_MS_MAX)",
        "MANY_REST_MS_MAX",
        "test_producer.py",
    ),
    _unit(
        "a new epoch follows exactly what the log has",
        "log/producer_state.py",
        "if header.follows is not None and header.follows != stands:",
        "if False:",
        GIVING_UP,
    ),
    _unit(
        "what came in under a former number is not sent again",
        "producer/sender.py",
        "if heard is not None and number is not None and number < heard.next_sequence:",
        "if False:",
        GIVING_UP,
    ),
    _unit(
        "a producer that was taken over ends whole",
        "producer/sender.py",
        "if isinstance(error, ProducerFenced) and frame in pending.frames:",
        "if False:",
        GIVING_UP,
    ),
    _unit(
        "a former life of a producer is refused",
        "log/producer_fence.py",
        "if number < known.number:",
        "if False:",
        COMES_BACK,
    ),
    _unit(
        "a new life of a producer is on disk before it begins",
        "log/producer_fence.py",
        "self._files.replace(self._path, GENERATIONS.encode(list(known.values())), sync=True)",
        "pass",
        COMES_BACK,
    ),
    _unit(
        "a life begins above every life that a buffer knows",
        "producer/life_start.py",
        "self.number, self.left = newest + 1, frozenset(range(self._buffers))",
        "self.left = frozenset()",
        COMES_BACK,
    ),
    _unit(
        "half a surrogate pair is refused where it is given",
        "data/message_form.py",
        "if not text.isascii():",
        "if False:",
        FORM,
    ),
    _unit(
        "a timestamp fits its column",
        "data/message_form.py",
        "if not -TIMESTAMP_MS_MAX <= timestamp_ms <= TIMESTAMP_MS_MAX:",
        "if False:",
        FORM,
    ),
    _unit(
        "headers count for the size of a message",
        "producer/accumulator.py",
        "size += extras[3]",
        "size += 0",
        FORM,
    ),
    _unit(
        "a frame is no larger than its log takes",
        "producer/accumulator.py",
        "if batch_bytes(batch) > room:",
        "if False:",
        FORM,
    ),
    _unit(
        "what is held for a busy buffer keeps its order",
        "producer/outbox.py",
        "        if held is None:\n            if not self._sender.gathers(buffer):",
        "        if held is None or not self._sender.gathers(buffer):\n"
        "            if not self._sender.gathers(buffer):",
        "test_outbox.py",
    ),
    _unit(
        "each who sent hears of its own messages in a frame of several",
        "producer/outbox.py",
        "base = None if base is None else base + start",
        "base = None if base is None else base",
        "test_outbox.py",
    ),
    _unit(
        "messages of one frame were given at about its date",
        "producer/outbox.py",
        "apart_ms <= DATED_TOGETHER_MS",
        "apart_ms >= 0",
        "test_outbox.py",
    ),
    _unit(
        "a body that is not written as Arrow does is left to Arrow",
        "data/plain_rows.py",
        "if found[5:17] != places[:-1] or not found[1] == places[-1] == size - _HEAD.size:",
        "if False:",
        "test_plain_rows.py",
    ),
    _unit(
        "a client has one line",
        "actors/buffer/buffer_link.py",
        "            if self.socket is not None:  # one was made meanwhile",
        "            if False:",
        "test_one_line.py",
    ),
    _unit(
        "deadlines follow the monotonic clock",
        "clock.py",
        "return time.monotonic_ns() // 1_000_000",
        "return time.time_ns() // 1_000_000",
        "test_clock_jumps.py",
    ),
    _unit(
        "a tenant is held back until what it sent is in the logs",
        "tenants/followed_routes.py",
        "return all(sent.done() for sent in self._under_way.get(tenant, ()))",
        "return True",
        "test_tenant_producers.py",
    ),
    _unit(
        "a silent producer of tenants is fenced before others go on",
        "tenants/tenant_moves.py",
        "yield from do(FenceProducer(producer, queues))",
        "pass",
        "test_tenant_producers.py",
    ),
    _unit(
        "producers of tenants are not blamed for the time in which their keeper stood still",
        "tenants/producer_leases.py",
        "min(now_s - self._seen_s, self._step_most_s)",
        "now_s - self._seen_s",
        "test_tenant_producers.py",
    ),
    _unit(
        "a fenced producer of tenants is told so when it asks again",
        "tenants/tenant_moves.py",
        "if joins and not is_new:",
        "if False:",
        "test_tenant_producers.py",
    ),
    _unit(
        "a new keeper of leases waits for whoever its former one knew",
        "tenants/tenant_moves.py",
        "if not sure:",
        "if False:",
        "test_tenant_producers.py",
    ),
)
