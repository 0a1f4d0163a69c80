"""The pipelines of paid calls, each with a consumer that is killed in the middle."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import ray

from examples.paid_calls.results import answer_to, ask
from pxrs_ray import PxrsConfig, Topology, deploy
from tests.light_ray import python_path

pytestmark = pytest.mark.ray

FOLDER = Path(__file__).resolve().parents[2] / "examples/paid_calls"
PROMPTS, PARALLELISM, PARTITIONS = 160, 8, 4
LINES_MAX = 60
WAIT_S = 60.0


@pytest.fixture(scope="module", autouse=True)
def a_ray(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One for all; its processes find the examples, and note what they pay for in `calls`."""
    environment = {"PYTHONPATH": python_path(FOLDER.parents[1])}
    ray.init("local", num_cpus=2, include_dashboard=False, runtime_env={"env_vars": environment})
    yield
    ray.shutdown()


@pytest.fixture
def pipeline(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Topology]:
    """The topology of one file, with its database and its notes in a folder of this test."""
    config = PxrsConfig.from_toml(FOLDER / f"{request.param}.toml", data_dir=str(tmp_path / "pxrs"))
    group = config.groups["llm"]
    variables = {"PAID_CALLS": str(tmp_path), "PYTHONPATH": python_path(FOLDER.parents[1])}
    config = config.changed(
        groups={
            "llm": {
                **group.model_dump(exclude_unset=True),
                "settings": {**group.settings, "database": str(tmp_path / "answers.db")},
                "ray_options": {"runtime_env": {"env_vars": variables}},
            }
        }
    )
    topology = deploy(config)
    yield topology
    topology.delete()


def calls(folder: Path, what: str) -> list[tuple[float, str]]:
    found = []
    for path in folder.glob("calls-*"):
        for line in path.read_text().splitlines():
            at_s, told, prompt = json.loads(line)
            if told == what:
                found.append((at_s, prompt))
    return sorted(found)


def until_paid(folder: Path, count: int) -> None:
    end_s = time.monotonic() + WAIT_S
    while len(calls(folder, "paid")) < count:
        assert time.monotonic() < end_s
        time.sleep(0.02)


def kill_one(topology: Topology) -> None:
    consumer = next(c for c in topology.group("llm").status().consumers if c.pid is not None)
    os.kill(consumer.pid or 0, signal.SIGKILL)


def run_with_a_kill(topology: Topology, folder: Path) -> None:
    ask(topology, {f"id-{n}": f"prompt {n}" for n in range(PROMPTS)})
    until_paid(folder, PROMPTS // 4)
    kill_one(topology)
    end_s = time.monotonic() + WAIT_S
    while topology.group("llm").lag():
        assert time.monotonic() < end_s, topology.group("llm").status()
        time.sleep(0.1)


def check_what_was_paid(folder: Path) -> None:
    with closing(sqlite3.connect(folder / "answers.db")) as connection:
        answers = connection.execute("SELECT answer FROM answers").fetchall()
    assert len(answers) == len(set(answers)) == PROMPTS, "each answer is there once"
    begun = Counter(prompt for _, prompt in calls(folder, "begun"))
    assert len(begun) == PROMPTS
    # One consumer had half of the partitions: no more could be under way.
    assert sum(begun.values()) - PROMPTS <= PARALLELISM * PARTITIONS // 2


@pytest.mark.parametrize("pipeline", ["rate_limit"], indirect=True)
def test_limits_are_kept_and_nothing_is_paid_twice(pipeline: Topology, tmp_path: Path) -> None:
    run_with_a_kill(pipeline, tmp_path)
    check_what_was_paid(tmp_path)
    begun = [at_s for at_s, _ in calls(tmp_path, "begun")]
    assert begun[-1] - begun[0] >= (PROMPTS - 2 * 20) / 20 - 0.5, "20 calls a second"


@pytest.mark.parametrize("pipeline", ["retry_after"], indirect=True)
def test_who_is_refused_comes_again_and_never_fails(pipeline: Topology, tmp_path: Path) -> None:
    run_with_a_kill(pipeline, tmp_path)
    check_what_was_paid(tmp_path)
    assert len(list(tmp_path.glob("refused-*"))) == PROMPTS
    assert pipeline.group("llm").status().given_up_count == 0


@pytest.mark.parametrize("pipeline", ["results"], indirect=True)
def test_who_asks_waits_for_the_answer(pipeline: Topology, tmp_path: Path) -> None:
    run_with_a_kill(pipeline, tmp_path)
    check_what_was_paid(tmp_path)
    ask(pipeline, {"late": "one more"})
    assert answer_to(pipeline, "late", WAIT_S) == "ONE MORE"
    found = [answer_to(pipeline, f"id-{n}", WAIT_S) for n in range(0, PROMPTS, 7)]
    assert found == [f"PROMPT {n}" for n in range(0, PROMPTS, 7)], "of those that were hit, too"

    @ray.remote(num_cpus=0)  # type: ignore[untyped-decorator]
    def elsewhere() -> str:
        return answer_to(pipeline, "id-3", WAIT_S)

    assert ray.get(elsewhere.remote(), timeout=WAIT_S) == "PROMPT 3"


@pytest.mark.parametrize("name", ["rate_limit", "retry_after", "results"])
def test_they_are_short(name: str) -> None:
    files = [FOLDER / f"{name}.{kind}" for kind in ("py", "toml")]
    assert sum(len(file.read_text().splitlines()) for file in files) <= LINES_MAX
