"""Members' leases in etcd: one lease a member, which takes the member's lease key with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pxrs_ray.model import Incarnation, MemberId, Outcome
from pxrs_ray.store.deadline import Deadline
from pxrs_ray.store.etcd.connection import EtcdConnection
from pxrs_ray.store.etcd.keys import GroupKeys

READS_MAX = 100


class EtcdLeases:
    """Grants, renews and replaces leases. etcd knows whole seconds, and a least number of them."""

    def __init__(self, connection: EtcdConnection) -> None:
        self._etcd = connection
        self._granted_s: dict[int, int] = {}

    def grant(self, deadline: Deadline, lease_ms: int) -> int:
        """A lease of at least `lease_ms`; its id."""
        asked_s = _seconds(lease_ms)
        lease, self._granted_s[asked_s] = self._etcd.grant(deadline, asked_s)
        return lease

    def renew(
        self,
        deadline: Deadline,
        keys: GroupKeys,
        leads: Any,
        members: Sequence[tuple[MemberId, Incarnation]],
        lease_ms: int,
    ) -> list[Outcome] | None:
        """One outcome a member; None when the comparison `leads` does not hold."""
        outcomes: list[Outcome] = []
        for start in range(0, len(members), READS_MAX):
            part = members[start : start + READS_MAX]
            reads = [self._etcd.get(keys.lease(member)) for member, _ in part]
            holds, answers = self._etcd.txn(deadline, [leads], reads)
            if not holds:
                return None
            outcomes += self._renew_found(deadline, keys, leads, part, answers, lease_ms)
        return outcomes

    def _renew_found(
        self,
        deadline: Deadline,
        keys: GroupKeys,
        leads: Any,
        members: Sequence[tuple[MemberId, Incarnation]],
        answers: Sequence[Any],
        lease_ms: int,
    ) -> list[Outcome]:
        live: dict[int, int] = {}
        for number, ((_, incarnation), answer) in enumerate(zip(members, answers, strict=True)):
            for kv in answer.response_range.kvs:
                if kv.value.decode() == str(incarnation):
                    live[number] = int(kv.lease)
        ttls = self._etcd.keep_alive(deadline, list(live.values())) if live else []
        asked_s = _seconds(lease_ms)
        outcomes = [Outcome.FENCED] * len(members)
        for (number, lease), ttl_s in zip(live.items(), ttls, strict=True):
            as_asked = ttl_s == self._granted_s.get(asked_s, asked_s)
            if not as_asked and ttl_s:
                member = members[number]
                as_asked = self._replace(deadline, keys, leads, member, lease, lease_ms)
            outcomes[number] = Outcome.APPLIED if as_asked else Outcome.FENCED
        return outcomes

    def _replace(
        self,
        deadline: Deadline,
        keys: GroupKeys,
        leads: Any,
        member: tuple[MemberId, Incarnation],
        old: int,
        lease_ms: int,
    ) -> bool:
        """Give a live member a lease of another length."""
        name, incarnation = member
        key, value = keys.lease(name), str(incarnation)
        lease = self.grant(deadline, lease_ms)
        holds, _ = self._etcd.txn(
            deadline, [leads, self._etcd.is_value(key, value)], [self._etcd.put(key, value, lease)]
        )
        self._etcd.revoke(deadline, old if holds else lease)
        return holds


def _seconds(lease_ms: int) -> int:
    return max(1, -(-lease_ms // 1_000))
