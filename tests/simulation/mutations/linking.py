"""Guards of links: who may speak, what may wait, and what becomes of ends that are gone."""

from __future__ import annotations

from tests.simulation.mutations.base import Change, Mutation

_STRANGERS = "tests/actors/test_link_strangers.py::"
_PEERS = "tests/actors/test_link_peers.py::"
_TCP = "tests/actors/test_links_over_tcp.py::"
_FAILURES = "tests/unit/test_call_failure.py::"


def _one(guard: str, file: str, text: str, instead: str, *tests: str) -> Mutation:
    return Mutation(guard, (Change(file, text, instead),), tests=tests)


LINKING = (
    _one(
        "a ticket of this node opens no door of the network",
        "data/link_door.py",
        "or not proven or ticket.network != network:",
        "or not proven:",
        f"{_STRANGERS}test_nobody_is_answered_who_has_no_ticket_for_this_door",
    ),
    _one(
        "a ticket opens once",
        "data/link_door.py",
        "        del self._given[number]\n",
        "",
        f"{_STRANGERS}test_nobody_is_answered_who_has_no_ticket_for_this_door",
    ),
    _one(
        "strangers of the network take no room of this node",
        "actors/buffer/socket_server.py",
        "end.stranger and end.network == network for",
        "end.stranger for",
        f"{_STRANGERS}test_strangers_of_the_network_take_no_room_of_this_node",
    ),
    _one(
        "who calls a buffer with TLS shows a certificate of the cluster",
        "data/link_tls.py",
        "made.verify_mode = ssl.CERT_REQUIRED",
        "made.verify_mode = ssl.CERT_NONE",
        f"{_STRANGERS}test_with_tls_both_ends_show_a_certificate_of_the_cluster",
    ),
    _one(
        "the certificate is the one that was meant",
        "data/link_tls.py",
        "if self._fingerprint and not hmac.compare_digest(found, self._fingerprint):",
        "if False:",
        f"{_STRANGERS}test_another_member_of_the_cluster_cannot_stand_in_between",
    ),
    _one(
        "who uses TLS speaks to nobody without",
        "actors/buffer/buffer_link.py",
        "if (tls_files(os.environ) is None) != (not offer.fingerprint):",
        "if False:",
        f"{_STRANGERS}test_tls_at_one_end_alone_is_told_of_and_makes_no_link",
    ),
    _one(
        "for who takes no answers nothing is begun",
        "data/link_room.py",
        "self.size_bytes < CALLS_BYTES_MAX and not self.stuck",
        "self.size_bytes < CALLS_BYTES_MAX",
        f"{_PEERS}test_who_asks_for_much_and_takes_nothing_fills_no_memory",
    ),
    _one(
        "calls that came at once are begun where there is room",
        "actors/buffer/server_end.py",
        "while self._waiting and self._room.has_room():",
        "while self._waiting:",
        f"{_PEERS}test_who_asks_for_much_and_takes_nothing_fills_no_memory",
    ),
    _one(
        "who calls without end is read no further",
        "actors/buffer/server_end.py",
        "        else:\n            self._transport.pause_reading()",
        "        else:\n            self._transport.resume_reading()",
        f"{_PEERS}test_who_calls_without_end_is_read_no_further",
    ),
    _one(
        "what waits for a socket is bounded",
        "actors/buffer/socket_writes.py",
        "if self.waiting_bytes > self._bytes_max:",
        "if False:",
        f"{_FAILURES}test_a_socket_that_takes_nothing_more_blocks_nobody_and_holds_only_so_much",
    ),
    _one(
        "what waits for a socket goes when it takes more",
        "actors/buffer/socket_client.py",
        "        if self._writes.empty == self._writes_asked:",
        "        if False:",
        f"{_FAILURES}test_what_waits_for_a_socket_goes_when_it_takes_more",
    ),
    _one(
        "who does not prove itself is given up",
        "data/link_plan.py",
        "        if self.is_late(now_s):\n            return Sign.GIVE_UP\n",
        "",
        f"{_PEERS}test_a_peer_that_never_proves_itself_is_given_up",
    ),
    _one(
        "a link that broke soon is not made anew at once",
        "data/link_plan.py",
        "self._ask_at_s = now_s + self._backoff.failed() * spread",
        "pass",
        f"{_PEERS}test_a_link_that_breaks_is_made_anew_after_a_pause",
    ),
    _one(
        "who is gone without a word is found",
        "actors/buffer/tcp_socket.py",
        '        ("TCP_USER_TIMEOUT", GONE_MS),\n',
        "",
        f"{_TCP}test_both_ends_send_at_once_and_find_who_is_gone",
    ),
    _one(
        "what is large has a connection of its own",
        "actors/buffer/buffer_client.py",
        "line = self._line(much=size_bytes > CALL_BYTES_MAX)",
        "line = self._line()",
        f"{_TCP}test_producers_take_a_link_for_little_and_one_for_much",
    ),
    _one(
        "what is large has a connection of its own on its node too",
        "actors/buffer/buffer_client.py",
        "return self._here_much.line() if much else line",
        "return line",
        "tests/actors/test_line.py::"
        "test_fetching_has_a_line_for_little_one_for_much_and_ray_for_more",
    ),
    _one(
        "a read goes the way that fits what the former one brought",
        "actors/buffer/buffer_client.py",
        "if not on_loop or self._reply_bytes > MUCH_REPLY_BYTES_MAX:",
        "if not on_loop:",
        "tests/actors/test_line.py::"
        "test_fetching_has_a_line_for_little_one_for_much_and_ray_for_more",
    ),
    _one(
        "a former coordinator says nothing about ports",
        "actors/buffer/buffer_actor.py",
        "if grant is not None and grant.generation >= info.generation:",
        "if grant is not None:",
        f"{_TCP}test_a_former_coordinator_says_nothing_about_ports",
    ),
    _one(
        "switched off, links that there are end",
        "actors/buffer/socket_server.py",
        "        for end in [end for end in self.ends if end.network == network]:",
        "        for end in [end for end in self.ends if not network and not end.network]:",
        f"{_TCP}test_switched_off_links_end_and_ray_carries_everything",
    ),
)
