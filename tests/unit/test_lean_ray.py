"""Commands load Ray without what they do not need; whoever needs that has it all the same."""

from __future__ import annotations

import subprocess
import sys

BEGIN = "import sys\nfrom pxrs_ray.cli._lean_ray import load_ray\nload_ray()\n"


def run(program: str) -> None:
    """In a process of its own, for modules are loaded once."""
    ran = subprocess.run(
        [sys.executable, "-c", BEGIN + program], capture_output=True, text=True, timeout=60
    )
    assert ran.returncode == 0, ran.stderr


def test_a_command_that_asks_loads_neither_arrow_nor_what_ray_seldom_needs() -> None:
    run(
        "from ray._private.worker import global_worker\n"
        "from ray._private.serialization import SerializationContext\n"
        "SerializationContext(global_worker)\n"
        "import pxrs_ray.actors.client.topology, pxrs_ray.status.views\n"
        "heavy = {'pyarrow', 'numpy', 'requests.api', 'jsonschema.validators', 'yaml.loader'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)"
    )


def test_what_was_left_out_is_there_when_it_is_looked_into() -> None:
    run(
        "import requests, requests.adapters, yaml\n"
        "from jsonschema import validate\n"
        "assert requests.get.__module__ == 'requests.api' and requests is sys.modules['requests']\n"
        "assert yaml.safe_load('a: 1') == {'a': 1}\n"
        "validate(1, {'type': 'integer'})\n"
        "from ray._private.runtime_env import plugin_schema_manager as theirs\n"
        "assert theirs.jsonschema.validate is validate"
    )


def test_who_has_arrow_in_use_has_rays_serializers_of_it() -> None:
    run(
        "import pyarrow\n"
        "from ray._private.worker import global_worker\n"
        "from ray._private.serialization import SerializationContext\n"
        "from ray import cloudpickle\n"
        "context = SerializationContext(global_worker)\n"
        "assert pyarrow.Table in cloudpickle.CloudPickler.dispatch_table"
    )


def test_a_process_that_has_ray_already_is_left_as_it_is() -> None:
    ran = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys, ray\nfrom ray.util import serialization_addons as had\nwas = had.apply\n"
            "from pxrs_ray.cli._lean_ray import load_ray\nload_ray()\n"
            "assert had.apply is was and 'requests.api' in sys.modules",
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.returncode == 0, ran.stderr
