"""The modes of processing: what each has, what cannot be written in it, and the old spellings."""

from __future__ import annotations

import ast
import json
import pickle
import tomllib
from pathlib import Path
from typing import Any

import pytest

import pxrs_ray
from pxrs_ray.config import ByKey, GroupConfig, Ordered, Packs, PxrsConfig
from pxrs_ray.config.declare import Effect, Options
from pxrs_ray.config.diff import who_reacts
from pxrs_ray.config.document import decode, encode
from pxrs_ray.config.old_spellings import OLD
from pxrs_ray.config.processing_modes import ProcessingMode
from pxrs_ray.config.scheduling import (
    calls_at_once,
    handler_timeout_ms,
    scheduler_for,
    tenant_header,
)
from pxrs_ray.errors import ConfigError
from pxrs_ray.model import Progress
from pxrs_ray.processing.key_ordered import KeyLanes
from pxrs_ray.processing.packs import PackScheduler

KINDS: dict[str, type[ProcessingMode]] = {"ordered": Ordered, "by_key": ByKey, "packs": Packs}
# A value of each old option that is not its default.
VALUES: dict[str, Any] = {
    "commit_mode": "batch",
    "consumer_per_partition": False,
    "parallelism": 8,
    "handler_timeout_ms": 500,
    "lookahead_records": 7,
    "lookahead_bytes": 7_000,
    "fair_tenants": True,
    "tenant_weights": {"acme": 2.0, "a b": 1.0},
    "tenant_header": "who",
    "submit_strategy": "batch",
    "processing_strategy": "retry_all",
    "pack_records": 9,
    "submit_batch_records": 3,
    "pack_timeout_ms": 900,
    "pack_retries": 2,
    "pack_pause_ms": 5,
    "pack_pause_ms_max": 20_000,
    "failure_percentage": 50.0,
}


def topology(**group: Any) -> PxrsConfig:
    return PxrsConfig(queues={"q": {}}, groups={"g": {"queue": "q", **group}})


def mode_of(**group: Any) -> ProcessingMode:
    return topology(**group).groups["g"].processing


def refused(**group: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        topology(**group)
    return str(caught.value)


# --- what each mode has ---------------------------------------------------------------------------


def test_a_group_that_says_nothing_is_ordered() -> None:
    assert mode_of() == Ordered() and Ordered().commit_mode == "interval"


@pytest.mark.parametrize("name", KINDS)
def test_a_mode_is_written_by_its_name_as_a_table_or_in_python(name: str) -> None:
    kind = KINDS[name]
    assert mode_of(processing=name) == mode_of(processing={"mode": name}) == kind()
    assert (
        mode_of(processing=kind()) == kind() == GroupConfig(queue="q", processing=kind()).processing
    )
    assert getattr(pxrs_ray, kind.__name__) is kind


@pytest.mark.parametrize(
    ("mode", "scheduler", "calls", "timeout_ms", "header"),
    [
        (Ordered(), None, 1, None, None),
        (ByKey(), KeyLanes, 16, None, None),
        (ByKey(parallelism=1, handler_timeout_ms=5), KeyLanes, 1, 5, None),
        (ByKey(fair_tenants=True), KeyLanes, 16, None, "tenant"),
        (ByKey(tenant_weights={"a": 2.0}, tenant_header="who"), KeyLanes, 16, None, "who"),
        (Packs(), PackScheduler, 16, None, "tenant"),
        (Packs(parallelism=3, tenant_header="who"), PackScheduler, 3, None, "who"),
    ],
)
def test_the_mode_alone_decides_how_a_partition_is_worked(
    mode: Ordered | ByKey | Packs,
    scheduler: type | None,
    calls: int,
    timeout_ms: int | None,
    header: str | None,
) -> None:
    made = scheduler_for(GroupConfig(queue="q", processing=mode), Progress(0))
    assert made is None if scheduler is None else isinstance(made, scheduler)
    assert (calls_at_once(mode), handler_timeout_ms(mode), tenant_header(mode)) == (
        calls,
        timeout_ms,
        header,
    )


@pytest.mark.parametrize("name", KINDS)
def test_a_mode_is_written_down_read_again_and_told_apart(name: str) -> None:
    """Also one that says nothing beside its name, which no default may swallow."""
    config = topology(processing=name)
    again = decode(encode(config))
    assert again == config and again.changed(history_keep=5).groups == config.groups
    assert pickle.loads(pickle.dumps(config)) == config
    others = [topology(processing=other).fingerprint() for other in KINDS if other != name]
    assert config.fingerprint() == again.fingerprint() and config.fingerprint() not in others


def test_a_default_of_a_mode_that_later_code_has_changed_is_not_taken() -> None:
    document = json.loads(encode(topology(processing={"mode": "by_key", "parallelism": 4})))
    document["values"]["groups"]["g"]["processing"]["lookahead_records"] = 77
    again = decode(json.dumps(document).encode())
    assert again.groups["g"].processing == ByKey(parallelism=4, lookahead_records=77)


def test_a_document_of_before_the_modes_is_refused_in_one_line() -> None:
    """It has all old options, said or not: nobody wants to read a line for each of them."""
    document = json.loads(encode(topology()))
    group = document["values"]["groups"]["g"]
    del group["processing"]
    group |= {**VALUES, "parallelism": None}
    with pytest.raises(
        ConfigError, match=r"that an earlier version wrote: groups\.g has"
    ) as caught:
        decode(json.dumps(document).encode())
    assert "\n" not in str(caught.value) and "deploy under another name" in str(caught.value)


# --- what cannot be written -----------------------------------------------------------------------


def test_an_option_that_a_mode_does_not_have_is_told_with_the_modes_that_do() -> None:
    seen = 0
    for name, kind in KINDS.items():
        for option in {o for other in KINDS.values() for o in other.model_fields}:
            if option in kind.model_fields:
                continue
            seen += 1
            told = refused(processing={"mode": name, option: 3})
            have = [repr(n) for n, other in KINDS.items() if option in other.model_fields]
            assert told == (
                f"groups.g.processing.{option} = 3: mode {name!r} has no such option; it is one of "
                + " and ".join(f"mode {one}" for one in have)
            )
            with pytest.raises(ConfigError, match=f"{option} = 3: mode {name!r} has no such"):
                kind(**{option: 3})
    assert seen >= 30


@pytest.mark.parametrize(
    ("processing", "told"),
    [
        ("bykey", ".mode = 'bykey': must be one of 'ordered', 'by_key', 'packs'; did you mean 'by"),
        ({"mode": 3}, ".mode = 3: must be one of 'ordered', 'by_key', 'packs'"),
        (3, " = 3: must be one of 'ordered', 'by_key', 'packs', or a table with one as its mode"),
        (None, " = None: must be one of 'ordered', 'by_key', 'packs', or a table with one"),
        ({}, ".mode: is missing; one of 'ordered', 'by_key', 'packs'"),
        ({"fair_tenants": True}, '.mode: is missing; write mode = "by_key" beside it'),
        (
            {"parallelism": 3},
            '.mode: is missing; write mode = "by_key" or mode = "packs" beside it',
        ),
        ({"mode": "by_key", "paralelism": 3}, ".paralelism: unknown option; did you mean 'parall"),
        ({"mode": "by_key", "parallelism": 1_025}, ".parallelism = 1025: must be a whole number"),
        ({"mode": "packs", "retries": "3"}, ".retries = '3': must be a whole number of at least 0"),
        (
            {"mode": "packs", "submit_strategy": "x"},
            ".submit_strategy = 'x': must be one of 'burst'",
        ),
        ({"mode": "packs", "pack_retries": 3}, ".pack_retries = 3: is called retries now"),
        (
            {"mode": "packs", "pause_ms": 20_000},
            ": pause_ms = 20000: must be at most pause_ms_max, which is 10000",
        ),
    ],
)
def test_what_is_no_mode_is_told(processing: Any, told: str) -> None:
    assert refused(processing=processing).startswith("groups.g.processing" + told)


@pytest.mark.parametrize("name", ["ordered", "packs"])
def test_a_quarantine_needs_keys_in_order_and_says_what_to_write(name: str) -> None:
    told = refused(processing=name, failure_policy="quarantine")
    assert f"mode {name!r} does not do" in told and 'write processing = "by_key"' in told
    config = topology(processing="by_key", failure_policy="quarantine")
    assert config.groups["g"].quarantine_queue == "q.quarantine.g"


# --- old spellings --------------------------------------------------------------------------------


def test_every_old_spelling_is_known_and_exists_where_it_is_said_to() -> None:
    assert set(OLD) == set(VALUES)
    assert not set(OLD) & set(GroupConfig.model_fields)
    for modes, name in OLD.values():
        assert {n for n, kind in KINDS.items() if name in kind.model_fields} == set(modes)


@pytest.mark.parametrize("old", OLD)
def test_an_old_spelling_in_python_is_answered_with_the_argument_to_write(old: str) -> None:
    for make in (lambda **o: GroupConfig(queue="q", **o), topology):
        with pytest.raises(ConfigError) as caught:
            make(**{old: VALUES[old]})
        told = str(caught.value)
        assert f"{old} = {VALUES[old]!r}: is an option of a processing mode now: write " in told
        written = told.partition(": write processing=")[2]
        made = eval(written, {kind.__name__: kind for kind in KINDS.values()})  # noqa: S307
        assert isinstance(ast.parse(written, mode="eval").body, ast.Call)
        assert getattr(made, OLD[old][1]) == VALUES[old] and mode_of(processing=made) == made


@pytest.mark.parametrize("old", OLD)
def test_an_old_spelling_in_a_file_is_answered_with_the_line_to_write(
    old: str, tmp_path: Path
) -> None:
    file = tmp_path / "t.toml"
    head = '[queues.q]\n[groups.g]\nqueue = "q"\n'
    value = VALUES[old]
    inline = '{acme = 2.0, "a b" = 1.0}' if isinstance(value, dict) else json.dumps(value)
    file.write_text(f"{head}{old} = {inline}\n")
    with pytest.raises(ConfigError) as caught:
        PxrsConfig.from_toml(file)
    told = str(caught.value)
    assert told.startswith(f"{file}:4: groups.g.{old} = ")
    line = told.partition(": write ")[2]
    assert tomllib.loads(line)["processing"]["mode"] in OLD[old][0]
    file.write_text(f"{head}{line}\n")
    made = PxrsConfig.from_toml(file).groups["g"].processing
    assert getattr(made, OLD[old][1]) == value


@pytest.mark.parametrize("old", OLD)
def test_an_old_spelling_in_a_variable_is_answered_with_the_variable_to_set(
    old: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = VALUES[old]
    name = f"PXRS_GROUPS__G__{old.upper()}"
    monkeypatch.setenv(name, value if isinstance(value, str) else json.dumps(value))
    told = refused()
    assert told.startswith(f"{name}: groups.g.{old} = ")
    variable, _, text = told.partition(": write ")[2].partition("=")
    monkeypatch.delenv(name)
    monkeypatch.setenv(variable, text.strip("'"))
    assert getattr(mode_of(), OLD[old][1]) == value


@pytest.mark.parametrize(
    ("old", "written"),
    [
        ({"parallelism": 8, "handler_timeout_ms": 9}, "ByKey(parallelism=8, handler_timeout_ms=9)"),
        # One at a time was what a time limit alone had; many are the mode's default.
        ({"handler_timeout_ms": 9}, "ByKey(parallelism=1, handler_timeout_ms=9)"),
        ({"parallelism": 8, "pack_retries": 0}, "Packs(parallelism=8, retries=0)"),
        ({"parallelism": None, "commit_mode": "batch"}, "Ordered(commit_mode='batch')"),
    ],
)
def test_old_spellings_that_stand_together_are_answered_together(
    old: dict[str, Any], written: str
) -> None:
    lines = refused(**old).splitlines()
    assert len(lines) == len(old) + (len(old) > 1)
    assert sum(line.endswith(f"write processing={written}") for line in lines) == sum(
        value is not None for value in old.values()
    )
    assert all("leave it out" in line for line in lines if " = None: " in line)


def test_an_old_spelling_that_did_nothing_in_its_mode_is_left_out() -> None:
    told = refused(submit_strategy="batch", handler_timeout_ms=9)
    assert "handler_timeout_ms = 9: is no option of mode 'packs'" in told
    assert told.count("write processing=Packs(submit_strategy='batch')") == 2


# --- files, variables and arguments ---------------------------------------------------------------


def test_a_variable_of_one_option_goes_on_with_the_mode_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "t.toml"
    head = '[queues.q]\n[groups."g.1"]\nqueue = "q"\n'
    of_group = "PXRS_GROUPS__G_1__PROCESSING"

    def made(written: str, **variables: str) -> ProcessingMode:
        file.write_text(head + written)
        with pytest.MonkeyPatch.context() as patch:
            for name, text in variables.items():
                patch.setenv(f"{of_group}{name}", text)
            return PxrsConfig.from_toml(file).groups["g.1"].processing

    table = '[groups."g.1".processing]\nmode = "by_key"\nparallelism = 4\nfair_tenants = true\n'
    assert made(table, __PARALLELISM="8") == ByKey(parallelism=8, fair_tenants=True)
    assert made('processing = "packs"\n', __SUBMIT_STRATEGY="batch") == Packs(
        submit_strategy="batch"
    )
    # One that names a mode stands for itself.
    assert made(table, __MODE="packs", __PARALLELISM="8") == Packs(parallelism=8)
    assert made(table, **{"": "ordered"}) == Ordered()
    assert made(table, **{"": "packs", "__RETRIES": "7"}) == Packs(retries=7)
    assert made("", **{"": '{"mode": "by_key", "parallelism": 2}'}) == ByKey(parallelism=2)
    with pytest.raises(
        ConfigError, match=r"__PARALLELISM: .*processing\.mode: is missing; write mode"
    ):
        made("", __PARALLELISM="8")
    with pytest.raises(ConfigError, match=r"__PARALELISM: .*did you mean .*__PARALLELISM\?"):
        made(table, __PARALELISM="8")
    with pytest.raises(ConfigError, match=r"__RETRIES: .*retries = 7: mode 'by_key' has no such"):
        made(table, __RETRIES="7")


def test_arguments_go_on_with_a_mode_or_stand_for_themselves() -> None:
    config = topology(processing=ByKey(parallelism=4, fair_tenants=True))

    def changed(processing: Any) -> ProcessingMode:
        return config.changed(groups={"g": {"processing": processing}}).groups["g"].processing

    assert changed({"parallelism": 9}) == ByKey(parallelism=9, fair_tenants=True)
    assert changed(ByKey(parallelism=9)) == ByKey(parallelism=9)
    assert changed({"mode": "by_key"}) == changed("by_key") == ByKey()


def test_the_line_of_a_wrong_option_is_told(tmp_path: Path) -> None:
    file = tmp_path / "t.toml"
    file.write_text('[queues.q]\n[groups.g]\nqueue = "q"\n[groups.g.processing]\nretries = 3\n')
    text = file.read_text()
    with pytest.raises(ConfigError, match=r't\.toml:4: .*mode: is missing; write mode = "packs"'):
        PxrsConfig.from_toml(file)
    file.write_text(text + 'mode = "by_key"\n')
    with pytest.raises(ConfigError, match=r"t\.toml:5: .*\.retries = 3: mode 'by_key' has no such"):
        PxrsConfig.from_toml(file)


# --- changes on a running topology ----------------------------------------------------------------


def told_of(before: Any, after: Any) -> dict[str, tuple[Effect, ...]]:
    found = topology(processing=before).diff(topology(processing=after))
    return {one.option.removeprefix("groups.g."): one.changes for one in found}


def test_within_a_mode_each_option_that_differs_is_told() -> None:
    before, after = ByKey(parallelism=4), ByKey(parallelism=8, fair_tenants=True)
    assert told_of(before, after) == {
        "processing.parallelism": (Effect.WORKERS,),
        "processing.fair_tenants": (Effect.WORKERS,),
    }


def test_another_mode_is_one_difference_and_goes_as_its_options_do() -> None:
    assert told_of(Ordered(), ByKey(parallelism=4)) == {
        "processing": (Effect.WORKERS,),
        "queues.q.gaps.g": (Effect.BUFFERS,),
    }
    assert told_of(Packs(retries=9), Ordered(commit_mode="batch")) == {
        "processing": (Effect.WORKERS,)
    }
    (found,) = topology().diff(topology(processing=Packs(retries=9)))
    assert str(found) == (
        "groups.g.processing: Ordered() -> Packs(retries=9) "
        "(live, in the consumers, between two messages)"
    )


def test_a_mode_with_one_message_in_hand_comes_and_goes_with_new_consumers() -> None:
    alone, by_key = Ordered(consumer_per_partition=False), ByKey()
    for before, after in ((alone, by_key), (by_key, alone), (alone, Ordered())):
        (changes,) = [c for o, c in told_of(before, after).items() if "queues." not in o]
        assert Effect.NEW_CONSUMERS in changes
        old, new = (topology(processing=one).groups["g"] for one in (before, after))
        assert Effect.NEW_CONSUMERS in who_reacts(old, new)


def test_a_group_gets_its_first_quarantine_live_and_keeps_it() -> None:
    before = topology(processing="by_key")
    after = topology(processing="by_key", failure_policy="quarantine")
    assert all(found.allowed for found in before.diff(after))
    refused = [found.option for found in after.diff(before) if not found.allowed]
    assert "groups.g.quarantine_queue" in refused


def test_every_option_of_a_mode_is_an_option() -> None:
    assert all(issubclass(kind, Options) for kind in KINDS.values())
    assert sorted(KINDS.values(), key=repr) == sorted(ProcessingMode.__subclasses__(), key=repr)
