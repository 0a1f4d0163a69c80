"""A Ray cluster whose autoscaler really adds and removes nodes, all on this machine.

`ray.cluster_utils.AutoscalingCluster` begins with `ray stop --force`, which would end every Ray on
the machine, and its configuration file is not in the wheel. This starts a head of its own, on
ports and in a folder of its own, with the same fake provider, and ends just what it started.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

from tests.servers import free_port

START_WAIT_S = 60
END_WAIT_S = 10


class AutoscaledCluster:
    """A head with `head_cpus`, and up to `workers_max` nodes of `worker` resources on demand."""

    def __init__(
        self, worker: dict[str, float], workers_max: int, head_cpus: int = 1, idle_s: float = 5
    ) -> None:
        self._folder = tempfile.mkdtemp(prefix="pxrs-as")
        self.port = free_port()
        self._worker, self._workers_max, self._head_cpus = worker, workers_max, head_cpus
        self._idle_s = idle_s
        self.environment = {
            "AUTOSCALER_UPDATE_INTERVAL_S": "1",
            "RAY_FAKE_CLUSTER": "1",
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_enable_autoscaler_v2": "0",
            "RAY_AUTH_MODE": "disabled",
        }
        self._before: dict[str, str | None] = {}

    @property
    def address(self) -> str:
        """What to give ray.init."""
        return f"{self._host()}:{self.port}"

    def _host(self) -> str:
        from ray._private import services

        return str(services.get_node_ip_address())

    def _configuration(self) -> dict[str, Any]:
        empty: dict[str, Any] = {
            name: []
            for name in (
                "initialization_commands",
                "setup_commands",
                "head_setup_commands",
                "worker_setup_commands",
                "head_start_ray_commands",
                "worker_start_ray_commands",
                "cluster_synced_files",
                "rsync_exclude",
                "rsync_filter",
            )
        }
        return {
            **empty,
            "cluster_name": "fake_multinode",
            "max_workers": self._workers_max,
            "provider": {
                "type": "fake_multinode",
                "use_node_id_as_ip": True,
                "disable_node_updaters": True,
                "disable_launch_config_check": True,
                "gcs_address": self.address,
            },
            "available_node_types": {
                "ray.head.default": {
                    "resources": {"CPU": self._head_cpus},
                    "node_config": {},
                    "max_workers": 0,
                },
                "worker": {
                    "resources": {"object_store_memory": 100_000_000, **self._worker},
                    "node_config": {},
                    "min_workers": 0,
                    "max_workers": self._workers_max,
                },
            },
            "head_node_type": "ray.head.default",
            "auth": {},
            "upscaling_speed": 4.0,
            "idle_timeout_minutes": self._idle_s / 60,
            "docker": {},
            "file_mounts": {},
            "file_mounts_sync_continuously": False,
        }

    def __enter__(self) -> Self:
        for name, value in self.environment.items():
            self._before[name] = os.environ.get(name)
            os.environ[name] = value
        config = Path(self._folder) / "autoscaler.json"
        config.write_text(json.dumps(self._configuration()))
        command = [
            str(Path(sys.executable).parent / "ray"),
            "start",
            "--head",
            f"--port={self.port}",
            f"--num-cpus={self._head_cpus}",
            "--object-store-memory=200000000",
            f"--temp-dir={self._folder}",
            f"--autoscaling-config={config}",
            "--include-dashboard=false",
            f"--dashboard-agent-listen-port={free_port()}",
            f"--ray-client-server-port={free_port()}",
            "--disable-usage-stats",
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=START_WAIT_S)
        if done.returncode:
            self.close()
            raise RuntimeError(f"the head did not start:\n{done.stdout}\n{done.stderr}")
        return self

    def close(self) -> None:
        """End every process of this cluster: those that name its folder or its port."""
        marks = (self._folder, f":{self.port}", f"={self.port}")
        ours = []
        for process in psutil.process_iter(["pid", "cmdline"]):
            line = " ".join(process.info["cmdline"] or [])
            if process.pid != os.getpid() and any(mark in line for mark in marks):
                ours.append(process)
        for process in ours:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        psutil.wait_procs(ours, timeout=END_WAIT_S)
        subprocess.run(["rm", "-rf", self._folder], check=True)
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def wait_until(condition: Any, timeout_s: float, pause_s: float = 0.2) -> bool:
    """Whether `condition()` became true in time."""
    end_s = time.monotonic() + timeout_s
    while time.monotonic() < end_s:
        if condition():
            return True
        time.sleep(pause_s)
    return bool(condition())
