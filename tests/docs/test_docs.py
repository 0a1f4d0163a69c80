"""The documentation holds: generated pages say what the code says, links lead on, code runs."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pxrs_ray
from pxrs_ray.actors.coordinator.metrics import METRICS
from pxrs_ray.config import PxrsConfig
from pxrs_ray.status.problem import OF_A_STATUS
from tests.docs.reference import DOCS, error_classes, pages
from tests.docs.remedies import REMEDIES
from tests.servers import skip_or_fail

ROOT = DOCS.parent
TEXTS = sorted([ROOT / "README.md", *DOCS.glob("*.md")])
# A block under this mark is a part of something: its imports are tried, the rest is compiled.
FRAGMENT = "<!-- fragment -->\n"
FENCED = re.compile(rf"^({FRAGMENT})?```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def blocks(path: Path, language: str, *, fragments: bool = False) -> list[str]:
    found = FENCED.findall(path.read_text())
    return [code for mark, lang, code in found if lang == language and bool(mark) == fragments]


@pytest.mark.parametrize("page", list(pages()))
def test_generated_pages_are_as_the_code_says(page: str) -> None:
    hint = "run: python -m tests.docs.reference --rewrite"
    assert (DOCS / page).read_text() == pages()[page], hint


def test_every_error_has_a_remedy_and_no_remedy_is_left_over() -> None:
    assert set(REMEDIES) == set(error_classes())


@pytest.mark.parametrize("name", [name for name in pxrs_ray.__all__ if name[0] != "_"])
def test_every_public_name_is_there_and_in_the_documentation(name: str) -> None:
    assert getattr(pxrs_ray, name) is not None
    assert any(re.search(rf"\b{name}\b", path.read_text()) for path in TEXTS)


@pytest.mark.parametrize("path", TEXTS, ids=name_of)
def test_links_lead_somewhere(path: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)\)", path.read_text())
    here = [link for link in links if "://" not in link]
    assert [link for link in here if not (path.parent / link).exists()] == []


def test_the_files_that_the_readme_names_are_there() -> None:
    named = re.findall(r"`((?:docs|examples)/[\w./]*)`", (ROOT / "README.md").read_text())
    assert named and [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("path", TEXTS, ids=name_of)
def test_topology_files_in_the_documentation_are_right(path: Path, tmp_path: Path) -> None:
    for number, text in enumerate(blocks(path, "toml")):
        (tmp_path / f"{number}.toml").write_text(text)
        PxrsConfig.from_toml(tmp_path / f"{number}.toml")


@pytest.mark.parametrize("path", TEXTS, ids=name_of)
def test_fragments_compile_and_import_what_there_is(path: Path) -> None:
    for code in blocks(path, "python", fragments=True):
        lines = code.splitlines()
        compile(code, name_of(path), "exec")
        imports = "\n".join(line for line in lines if line.startswith(("import ", "from ")))
        exec(imports, {})  # noqa: S102 - our own documentation


@pytest.fixture(scope="module")
def no_ray_yet() -> Iterator[None]:
    import ray

    yield
    ray.shutdown()


@pytest.mark.ray
@pytest.mark.parametrize("path", [path for path in TEXTS if blocks(path, "python")], ids=name_of)
def test_python_in_the_documentation_runs(
    path: Path, tmp_path: Path, no_ray_yet: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All blocks of a page in their order, in one namespace, each page in a Ray of its own."""
    import ray

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PXRS_DATA_DIR", str(tmp_path / "data"))
    names: dict[str, Any] = {"__name__": "__main__"}
    for code in blocks(path, "python"):
        exec(compile(code, name_of(path), "exec"), names)  # noqa: S102 - our own documentation
    ray.shutdown()


def expressions() -> list[str]:
    board = json.loads((DOCS / "ops/grafana.json").read_text())
    return [target["expr"] for panel in board["panels"] for target in panel["targets"]]


def promtool(rules: Path) -> None:
    tool = shutil.which("promtool")
    if tool is None:
        skip_or_fail("promtool is missing: run `make setup` as root, or get prometheus")
    ran = subprocess.run([str(tool), "check", "rules", str(rules)], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.service
def test_the_alert_rules_are_right() -> None:
    promtool(DOCS / "ops/alerts.yml")


@pytest.mark.service
def test_each_fault_has_an_alert_and_a_sound_topology_none() -> None:
    tool = shutil.which("promtool")
    if tool is None:
        skip_or_fail("promtool is missing: run `make setup` as root, or get prometheus")
    rules = Path(__file__).parent / "alerts_test.yml"
    ran = subprocess.run([str(tool), "test", "rules", str(rules)], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    alerts = set(re.findall(r"- alert: (\w+)", (DOCS / "ops/alerts.yml").read_text()))
    assert alerts == set(re.findall(r'alertname="(\w+)"', rules.read_text())), "each is proven"


def test_the_table_of_what_tells_of_what_names_every_alert_and_real_kinds() -> None:
    text = (DOCS / "operating.md").read_text()
    table = text[text.index("## What tells of what") : text.index("## When something is wrong")]
    alerts = set(re.findall(r"- alert: (\w+)", (DOCS / "ops/alerts.yml").read_text()))
    told = set(re.findall(r"`(Pxrs\w+)`", table))
    assert told <= alerts
    # Of no single fault: whatever else is wrong, and what is only uneven.
    assert alerts - told == {
        "PxrsProblem",
        "PxrsBuffersUneven",
        "PxrsPartitionWithoutOwner",
    }
    kinds = set(re.findall(r"`([a-z]+_[a-z_]+)`", table)) - {"pxrs_problems"}
    assert kinds <= {str(kind) for kind in OF_A_STATUS}


@pytest.mark.service
def test_the_expressions_of_the_board_are_right(tmp_path: Path) -> None:
    rules = "".join(
        f"      - record: panel_{number}\n        expr: {json.dumps(text)}\n"
        for number, text in enumerate(text.replace("$topology", "t") for text in expressions())
    )
    path = tmp_path / "board.yml"
    path.write_text(f"groups:\n  - name: board\n    rules:\n{rules.replace('$group', 'g')}")
    promtool(path)


def test_the_cluster_for_kubernetes_is_whole_and_says_what_its_page_says() -> None:
    import yaml

    from tests.docs.test_told_commands import wrong

    cluster, job = yaml.safe_load_all((DOCS / "ops/kuberay.yml").read_text())
    assert (cluster["kind"], job["kind"]) == ("RayCluster", "RayJob")
    assert job["spec"]["clusterSelector"] == {"ray.io/cluster": cluster["metadata"]["name"]}
    assert wrong(job["spec"]["entrypoint"].removeprefix("pxrs ")) == ""
    workers = [group["template"]["spec"] for group in cluster["spec"]["workerGroupSpecs"]]
    every = [cluster["spec"]["headGroupSpec"]["template"]["spec"], *workers]
    images = {container["image"] for spec in every for container in spec["containers"]}
    assert len(images) == 1, "the same everywhere"
    text = (DOCS / "kubernetes.md").read_text()
    for spec in workers:
        mounted = {m["name"]: m["mountPath"] for c in spec["containers"] for m in c["volumeMounts"]}
        assert {volume["name"] for volume in spec["volumes"]} == mounted.keys()
        assert f'data_dir = "{mounted["logs"]}"' in text
    assert "logs" not in [v["name"] for v in every[0].get("volumes", [])], "the head keeps none"
    assert Path(job["spec"]["entrypoint"].split()[-1]).parent.as_posix() in text


def test_board_and_alerts_name_only_metrics_that_there_are() -> None:
    told = "\n".join([*expressions(), (DOCS / "ops/alerts.yml").read_text()])
    used = set(re.findall(r"ray_pxrs_(\w+?)(?:_total|_bucket)?\b", told))
    assert used <= set(METRICS) and len(used) > len(METRICS) / 2
