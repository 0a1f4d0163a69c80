"""A real `ray start --head` with token authentication, as an operator has it; ended by its pids.

PXRS is installed from its wheel, in a virtual environment of its own: what works here works without
the checkout. Everything it writes is in a folder of its own.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.cli.console import Console
from tests.cli.desk import HANDLERS, TOPOLOGY
from tests.servers import free_port

ROOT = Path(__file__).resolve().parent.parent.parent
START_SECONDS_MAX = 90


@dataclass(frozen=True)
class Cluster:
    """How to get into the cluster: variables for child processes, and its folder."""

    variables: dict[str, str]
    folder: Path
    environment: Path
    console: Console

    def open_console(self, folder: Path) -> Console:
        """One more terminal."""
        return Console(_python(self.environment), self.variables, folder)

    def run(
        self, *command: str, cwd: Path | None = None, timeout: float = 120, text: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run a command as a user of the cluster would.

        This cluster is named by its ports, as others run here too. To a named one Ray's own
        commands take the token along where RAY_AUTH_MODE says so, which docs/operating.md tells;
        ours need no telling.
        """
        mode = {"RAY_AUTH_MODE": "token"} if command[0] == "ray" else {}
        return subprocess.run(
            command,
            cwd=cwd or self.folder,
            env={**self.variables, **mode},
            input=text,
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    def pxrs(self, *arguments: str, cwd: Path | None = None) -> str:
        """Run `pxrs`, which must succeed; answers its stdout. With `cwd` it is a process of its
        own, as one is for a user; without, the terminal that has joined Ray already."""
        if cwd is None:
            return self.console.shown(*arguments)
        ran = self.run("pxrs", *arguments, cwd=cwd)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout


def _python(environment: Path) -> Path:
    """The interpreter that has PXRS as its users have it."""
    return environment / "bin/python"


def install(folder: Path) -> Path:
    """Install the wheel of the present tree into a virtual environment of its own.

    What it needs is seen in ours, so nothing is fetched; ours has PXRS only as a hook in a file
    that is not read there.
    """
    source, environment = folder / "source", folder / "venv"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", "pxrs_ray", "actors", "spark", "docs"):
        if (ROOT / name).is_dir():
            shutil.copytree(
                ROOT / name,
                source / name,
                symlinks=True,
                ignore=shutil.ignore_patterns("__pycache__"),
            )
        else:
            shutil.copy(ROOT / name, source / name)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    python = _python(environment)
    inside = "lib/python{}.{}/site-packages".format(*sys.version_info)
    ours = [path for path in sys.path if path.endswith("site-packages")]
    (environment / inside / "ours.pth").write_text("\n".join(ours) + "\n")
    pip = [str(python), "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, str(source)], check=True, timeout=180)
    ray = environment / "bin/ray"
    ray.write_text(f"#!{python}\nfrom ray.scripts.scripts import main\nmain()\n")
    ray.chmod(0o755)
    return environment


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """The cluster, for the whole run. Its folder's name is short: sockets are in it."""
    folder = Path(tempfile.mkdtemp(prefix="pxrs-c-"))
    environment = install(folder)
    # Where `ray get-auth-token --generate` puts it. No variable says that there is one.
    token = folder / "home/.ray/auth_token"
    token.parent.mkdir(parents=True)
    token.write_text(secrets.token_hex(32))
    head, page, agent, client = (free_port() for _ in range(4))
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("RAY_", "PXRS_", "PYTHON"))}
    variables = {
        **kept,
        "PATH": f"{environment / 'bin'}:{os.environ['PATH']}",
        "HOME": str(folder / "home"),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_metrics_report_interval_ms": "1000",
        "RAY_ADDRESS": f"127.0.0.1:{head}",
        "RAY_API_SERVER_ADDRESS": f"http://127.0.0.1:{page}",
        "PXRS_DATA_DIR": str(folder / "data"),
        "COLUMNS": "160",
    }
    command = (
        f"{environment}/bin/ray start --head --block --num-cpus=2 "
        f"--node-ip-address=127.0.0.1 --port={head} "
        f"--dashboard-host=127.0.0.1 --dashboard-port={page} --dashboard-agent-listen-port={agent} "
        f"--ray-client-server-port={client} --min-worker-port=0 --max-worker-port=0 "
        f"--temp-dir={folder / 'ray'} --disable-usage-stats"
    ).split()
    without = {k: v for k, v in variables.items() if k not in ("RAY_ADDRESS",)}
    with (folder / "ray.log").open("w") as log:
        ray = subprocess.Popen(
            command, env=without, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    console = Console(_python(environment), variables, folder)
    found = Cluster(variables, folder, environment, console)
    try:
        _wait_until_up(found, ray)
        yield found
    finally:
        console.close()
        _end(ray, folder)


def _wait_until_up(cluster: Cluster, ray: subprocess.Popen[bytes]) -> None:
    end_s = time.monotonic() + START_SECONDS_MAX
    while cluster.run("ray", "job", "list").returncode != 0:
        if ray.poll() is not None or time.monotonic() > end_s:
            pytest.fail(f"Ray did not start: {(cluster.folder / 'ray.log').read_text()[-2000:]}")
        time.sleep(0.2)


def _end(ray: subprocess.Popen[bytes], folder: Path) -> None:
    """End every process whose command line names our folder, and those it started."""
    ray.terminate()
    mine: set[psutil.Process] = set()
    for process in psutil.process_iter(["cmdline"]):
        if any(str(folder) in part for part in process.info["cmdline"] or ()):
            mine |= {process, *process.children(recursive=True)}
    for process in mine:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(mine, 10)
    ray.wait(10)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def desk(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A running topology, brought up from its file; the folder that the file is in."""
    folder = tmp_path_factory.mktemp("desk")
    (folder / "desk_handlers.py").write_text(HANDLERS)
    (folder / "desk.toml").write_text(TOPOLOGY.format(options=""))
    cluster.pxrs("up", "desk.toml", cwd=folder)
    yield folder
    cluster.console.run("down", "desk", "--now")


@pytest.fixture(scope="module")
def pxrs(cluster: Cluster, desk: Path) -> Iterator[Console]:
    """A terminal in the cluster, beside the running topology."""
    console = cluster.open_console(desk)
    yield console
    console.close()
