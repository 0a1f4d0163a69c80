"""Guards of replicated logs: the machines of a slot's leader and followers, and who is elected."""

from __future__ import annotations

from tests.simulation.mutations.base import Change, Mutation

_LEADER, _FOLLOWER = "replication/slot_leader.py", "replication/slot_follower.py"
_PLACEMENT, _EPOCHS = "replication/placement.py", "replication/epoch_table.py"
_REPLICA = "replication/slot_replica.py"
_STORIES = "tests/unit/test_replication.py::test_"


def _one(guard: str, file: str, text: str, instead: str, test: str) -> Mutation:
    return Mutation(guard, (Change(file, text, instead),), tests=(f"{_STORIES}{test}",))


def _dropped(guard: str, file: str, text: str, instead: str, test: str) -> Mutation:
    where = f"tests/unit/test_dropped_for_replicas.py::test_{test}"
    return Mutation(guard, (Change(file, text, instead),), tests=(where,))


def _hosted(guard: str, text: str, instead: str, test: str) -> Mutation:
    where = f"tests/unit/test_slot_replica.py::test_{test}"
    return Mutation(guard, (Change(_REPLICA, text, instead),), tests=(where,))


def _placed(
    guard: str, text: str, instead: str, test: str, file: str = "replication/placements.py"
) -> Mutation:
    where = f"tests/unit/test_placements.py::test_{test}"
    return Mutation(guard, (Change(file, text, instead),), tests=(where,))


def _said(guard: str, text: str, instead: str, test: str) -> Mutation:
    where = f"tests/unit/test_peer_wire.py::test_{test}"
    return Mutation(guard, (Change("replication/peer_wire.py", text, instead),), tests=(where,))


REPLICATING = (
    _one(
        "a replica that may be in sync by now is waited for",
        _LEADER,
        "return (*self.placement.isr, *self._asked)",
        "return self.placement.isr",
        "a_replica_that_comes_back_is_waited_for_from_the_moment_it_is_asked_for",
    ),
    _one(
        "a follower cuts by the answer to its last question alone",
        _FOLLOWER,
        "if self._is_answer(said, log) and not log.agreed:",
        "if True:",
        "a_cut_that_comes_late_cuts_nothing_that_was_stored_since",
    ),
    _one(
        "a follower hears nothing of another epoch",
        _FOLLOWER,
        "if log is None or said.epoch != self.epoch:",
        "if log is None:",
        "kip_320_what_is_said_under_another_epoch_is_not_heard",
    ),
    _one(
        "a leader hears nothing of another epoch",
        _LEADER,
        "if self.ended or said.epoch != self.placement.epoch or who.disk == self._me:",
        "if self.ended or who.disk == self._me:",
        "a_leader_hears_nothing_of_another_epoch_and_no_question_that_was_answered",
    ),
    _one(
        "a leader answers no question that was answered",
        _LEADER,
        "if said.number < progress.number:",
        "if False:",
        "a_leader_hears_nothing_of_another_epoch_and_no_question_that_was_answered",
    ),
    _one(
        "what a former life of a follower says is not heard",
        _LEADER,
        "if known is not None and who.life < known.who.life:",
        "if False:",
        "what_a_former_life_has_stored_counts_for_nothing",
    ),
    _one(
        "only a replica in sync is elected",
        _PLACEMENT,
        "able = [member for member in placement.isr if",
        "able = [InSync(d, seen[d].boot) for d in placement.replicas if d in seen] or [\n"
        "        member for member in placement.isr if",
        "only_who_is_in_sync_is_elected_and_nobody_leaves_the_set_by_it",
    ),
    _one(
        "nobody leaves the in-sync set for one that may be gone",
        _PLACEMENT,
        "    if chosen.disk not in answered:\n        return led\n",
        "",
        "only_who_is_in_sync_is_elected_and_nobody_leaves_the_set_by_it",
    ),
    _one(
        "who may have lost what was not synced is not elected",
        _PLACEMENT,
        "found.whole and (synced_only or found.boot == member.boot)",
        "found.whole",
        "kip_966_the_last_replica_is_not_elected_when_its_machine_was_started_again",
    ),
    _one(
        "a damaged replica is not elected",
        _PLACEMENT,
        "return found is not None and found.whole and",
        "return found is not None and",
        "a_damaged_replica_is_not_elected_and_why_the_slot_waits_is_told",
    ),
    _one(
        "where a power cut is to take nothing a leader counts what it has synced",
        _LEADER,
        "return log.synced if self._settings.synced_only else log.end",
        "return log.end",
        "where_a_power_cut_is_to_take_nothing_only_what_is_synced_counts",
    ),
    _one(
        "where a power cut is to take nothing a follower counts with what it has synced",
        _LEADER,
        "return progress.synced if self._settings.synced_only else progress.end",
        "return progress.end",
        "where_a_power_cut_is_to_take_nothing_only_what_is_synced_counts",
    ),
    _one(
        "a question about the in-sync set counts for the placement that it was asked of",
        _PLACEMENT,
        "if (asked.epoch, asked.version) != (placement.epoch, placement.version):",
        "if False:",
        "kip_903_a_question_older_than_a_replicas_last_start_lets_nobody_in",
    ),
    _one(
        "who is let in lives in the boot in which it caught up",
        _PLACEMENT,
        "if found is None or found.boot != member.boot or not found.whole:",
        "if False:",
        "kip_903_a_question_older_than_a_replicas_last_start_lets_nobody_in",
    ),
    _one(
        "fewer in sync than the least acknowledge nothing",
        _LEADER,
        "return not self.ended and len(self.placement.isr) >= self._settings.min_isr",
        "return not self.ended",
        "fewer_in_sync_than_the_least_acknowledge_nothing",
    ),
    _one(
        "a follower cuts by epochs and not by its high watermark",
        _FOLLOWER,
        "        log.number += 1\n",
        "        log.number += 1\n"
        "        log.end = min(log.end, log.high_watermark)\n"
        "        self._effects.append(CutLog(partition, log.end))\n",
        "kip_101_a_follower_that_restarts_keeps_what_its_leader_has",
    ),
    _one(
        "an epoch without a frame is cut",
        _FOLLOWER,
        "if end < log.end or log.table.begins_at(end):",
        "if end < log.end:",
        "an_epoch_without_a_message_is_cut_though_no_message_is",
    ),
    _one(
        "a leader names an epoch that it has had",
        _EPOCHS,
        "return self.begins[at][0], end",
        "return epoch, end",
        "kip_279_who_had_an_epoch_of_its_own_cuts_down_to_one_that_both_had",
    ),
    _one(
        "who is let in has what the log had when the epoch began",
        _LEADER,
        "< max(log.high_watermark, begun):",
        "< log.high_watermark:",
        "who_lacks_what_the_log_had_when_the_epoch_began_is_not_let_in",
    ),
    _one(
        "frames are taken at the end of the log",
        _FOLLOWER,
        "if frames.first != log.end:",
        "if frames.first > log.end:",
        "frames_are_taken_at_the_end_of_the_log_and_nowhere_else",
    ),
    _one(
        "a high watermark never goes back",
        _LEADER,
        "if to > log.high_watermark:",
        "if to != log.high_watermark:",
        "the_high_watermark_is_what_all_in_sync_have_and_it_never_goes_back",
    ),
    _one(
        "frames that were lost are sent again",
        _LEADER,
        "if progress.sent > progress.end and now_ms >= progress.again_ms:",
        "if False:",
        "what_was_lost_on_the_way_is_said_again",
    ),
    _one(
        "an answer that brings nothing puts no repetition off",
        _LEADER,
        "            if said.end > progress.end:\n",
        "            if True:\n",
        "what_was_lost_on_the_way_is_said_again",
    ),
    _dropped(
        "an answer to a former life is not heard",
        _FOLLOWER,
        "return (said.life, said.number) == (self._who.life, log.number)",
        "return said.number == log.number",
        "an_answer_to_a_former_life_is_not_heard",
    ),
    _dropped(
        "what was stored before a new beginning counts for nothing",
        _LEADER,
        "elif not progress.agreed or said.number != progress.number:",
        "elif not progress.agreed:",
        "what_was_stored_before_a_new_beginning_counts_for_nothing",
    ),
    _dropped(
        "nobody is cut below what it still has",
        _LEADER,
        "none_left = at < asked.first or 0 < at <= log.first",
        "none_left = 0 < at <= log.first",
        "who_begins_later_than_the_leader_begins_anew_where_it_cannot_be_cut",
    ),
    _dropped(
        "nobody is cut below what the leader still has",
        _LEADER,
        "none_left = at < asked.first or 0 < at <= log.first",
        "none_left = at < asked.first",
        "who_has_nothing_of_what_the_leader_still_has_begins_anew[it has an epoch of its own]",
    ),
    _dropped(
        "whose next frames are dropped begins anew",
        _LEADER,
        "if progress.sent < self.logs[key].first:",
        "if False:",
        "whose_next_frames_are_dropped_meanwhile_begins_anew_and_is_told_until_it_does",
    ),
    _dropped(
        "who is to begin anew is told until it does",
        _LEADER,
        "if progress.left_behind and now_ms >= progress.again_ms:",
        "if False:",
        "whose_next_frames_are_dropped_meanwhile_begins_anew_and_is_told_until_it_does",
    ),
    _dropped(
        "a question that was late is no answer to who was told to begin anew",
        _LEADER,
        "if asked.number == progress.number and (progress.agreed or progress.left_behind):",
        "if asked.number == progress.number and progress.agreed:",
        "whose_next_frames_are_dropped_meanwhile_begins_anew_and_is_told_until_it_does",
    ),
    _dropped(
        "what a follower said last is asked again",
        _LEADER,
        "unsure = progress.heard != to_tell or progress.synced < progress.end",
        "unsure = progress.heard != to_tell",
        "what_a_follower_said_last_and_was_lost_is_asked_again",
    ),
    _dropped(
        "a start that was lost on the way is told again",
        _LEADER,
        "again = progress.told != to_tell or now_ms >= progress.again_ms",
        "again = progress.told != to_tell",
        "a_start_that_was_lost_on_the_way_is_told_again",
    ),
    _dropped(
        "who begins where its leader does is at the end of what was before",
        _EPOCHS,
        "            self.begins = [(0, 0), *kept]\n",
        "            pass\n",
        "who_has_nothing_of_what_the_leader_still_has_begins_anew[it ends before it]",
    ),
    _said(
        "a length is compared with its bound before anything of it is kept",
        "        if found > most:\n",
        "        if False:\n",
        "a_length_is_refused_before_anything_of_it_is_kept",
    ),
    _said(
        "what replicas say ends where it says so",
        "    if reader.at != len(reader.data):\n",
        "    if False:\n",
        "a_length_is_refused_before_anything_of_it_is_kept",
    ),
    _said(
        "what another version says is not taken for a message of replicas",
        "if version != VERSION or number not in _FORMS:",
        "if number not in _FORMS:",
        "another_version_or_kind_is_refused_with_what_to_do",
    ),
    _placed(
        "no replica hears of what is not durable",
        "            self._effects.append(KeepPlacements(self._writing))\n",
        "            self._effects.append(KeepPlacements(self._writing))\n"
        "            self._effects += [TellReplicas(s, self._writing.slots[s]) for s in slots]\n",
        "nobody_hears_of_an_election_before_it_is_durable",
    ),
    _placed(
        "one write of placements at a time",
        "        if self._writing is not None:\n            return\n        slots",
        "        slots",
        "nobody_hears_of_an_election_before_it_is_durable",
    ),
    _placed(
        "a coordinator that was replaced places nobody",
        "        if self.ended:\n            return\n        self._note_missed(now_ms)\n",
        "        self._note_missed(now_ms)\n",
        "who_was_replaced_changes_and_tells_nothing_more",
    ),
    _placed(
        "who began a moment ago elects nobody",
        "if slot in changing or not self._has_heard(slot, placement, now_ms):",
        "if slot in changing:",
        "who_began_a_moment_ago_elects_nobody_and_calls_nobody_absent",
    ),
    _placed(
        "who began a moment ago calls nobody absent",
        "if placement is None or not self._has_heard(slot, placement, now_ms):",
        "if placement is None:",
        "who_began_a_moment_ago_elects_nobody_and_calls_nobody_absent",
    ),
    _placed(
        "a later process is not forgotten for what an earlier one has answered",
        "if known is None or known[0] <= asked_ms:",
        "if True:",
        "an_answer_counts_from_when_it_was_asked_and_none_for_an_earlier_process",
    ),
    _placed(
        "a process that died takes no later one with it",
        "if known is not None and known[1].life == life:",
        "if known is not None:",
        "an_answer_counts_from_when_it_was_asked_and_none_for_an_earlier_process",
    ),
    _placed(
        "a disk has a process for each slot",
        "if of == slot and at_ms >= since_ms",
        "if at_ms >= since_ms",
        "a_disk_has_a_process_for_each_slot",
    ),
    _one(
        "who was never heard stays in sync while there is nothing to have",
        _LEADER,
        "        # Who was never heard lacks all that there is: nothing, without logs.\n",
        "        if heard is None:\n            return True\n",
        "who_was_never_heard_stays_in_sync_while_there_is_nothing_to_have",
    ),
    _placed(
        "no two replicas of a slot are on one host",
        "left = [node for node in fit if all(node.host != one.host for one in chosen)]",
        "left = fit",
        "two_disks_of_one_host_keep_no_two_replicas_of_a_slot",
        "topology/replica_spread.py",
    ),
    _hosted(
        "what was dropped a moment ago is not asked of a log",
        "        if ship.first < led.first:\n",
        "        if False:\n",
        "what_is_dropped_while_frames_are_asked_for_ends_nobody",
    ),
    _hosted(
        "a follower drops what its leader has dropped",
        "            if log.follow_start(followed.start, self._wall_ms()):\n",
        "            if False:\n",
        "who_joins_when_all_that_was_is_dropped_answers_its_producers_all_the_same",
    ),
    _hosted(
        "what a follower syncs by dropping is told",
        "                if log.durable_offset > self._follower.logs[key].synced:\n",
        "                if False:\n",
        "what_is_synced_because_something_was_dropped_is_told",
    ),
    _hosted(
        "who leads writes under its own epoch",
        "        log.begin_epoch(placement.epoch, self._wall_ms())\n",
        "",
        "who_was_left_behind_is_cut_back_to_the_one_that_leads",
    ),
    _hosted(
        "readers of a leader see what all in sync have",
        "                    self.logs[effect.key].advance(effect.to)\n",
        "                    self.logs[effect.key].advance(1 << 60)\n",
        "what_is_acknowledged_is_on_both_and_readable_on_both",
    ),
    _hosted(
        "a log is cut where the machine says so",
        "self.logs[effect.key].cut(effect.end, self._wall_ms())",
        "pass",
        "who_was_left_behind_is_cut_back_to_the_one_that_leads",
    ),
)
