"""Where options come from: TOML files with lines, PXRS_ variables, and which goes before which."""

from __future__ import annotations

from pathlib import Path

import pytest

from pxrs_ray.config import GroupConfig, PxrsConfig
from pxrs_ray.errors import ConfigError

FILE = """\
# a topology
name = "payments"
num_partitions = 8

[queues.payments]
durability = "always"
retention_ms = 60_000

[queues."eu.orders-2"]

[groups.billing]
queue = "payments"   # the group's queue
handler = "shop.handlers:charge"
ray_options.num_cpus = 0.5
static_map = {
    a = [0, 1],
}
assignor = "static"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "payments.toml"
    path.write_text(FILE.replace("{\n    a = [0, 1],\n}", "{ a = [0, 1] }"))
    return path


def test_a_file_makes_the_whole_topology(file: Path) -> None:
    config = PxrsConfig.from_toml(file)
    assert config.name == "payments"
    assert config.queues["payments"].durability == "always"
    assert config.queues["eu.orders-2"].partitions == 8
    assert config.groups["billing"].ray_options == {"num_cpus": 0.5}
    assert config.groups["billing"].static_map == {"a": [0, 1]}


def test_problems_of_a_file_are_told_with_their_lines(file: Path) -> None:
    text = file.read_text()
    text = text.replace("num_partitions = 8", "num_partitions = 0")
    text = text.replace('durability = "always"', 'durabilty = "always"')
    text = text.replace('queue = "payments"', 'queue = "-"')
    text = text.replace("num_cpus = 0.5", "num_cpus = 0.5\nray_optons.num_gpus = 1")
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        PxrsConfig.from_toml(file)
    told = str(caught.value)
    assert f"{file}:3: num_partitions = 0: must be a whole number" in told
    assert f"{file}:6: queues.payments.durabilty: unknown option; did you mean 'durab" in told
    assert f"{file}:12: groups.billing.queue = '-': must be a text like" in told
    assert f"{file}:15: groups.billing.ray_optons: unknown option; did you mean 'ray_op" in told


def test_a_missing_option_is_told_at_its_table(tmp_path: Path) -> None:
    path = tmp_path / "t.toml"
    path.write_text("\n[groups.billing]\nconsumers = 2\n")
    with pytest.raises(ConfigError, match=r"t\.toml:2: groups\.billing\.queue: is missing"):
        PxrsConfig.from_toml(path)


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no\.toml: there is no such file.*pxrs init"):
        PxrsConfig.from_toml(tmp_path / "no.toml")
    path = tmp_path / "bad.toml"
    path.write_text("name = 'x'\nbuffers = = 3\n")
    with pytest.raises(ConfigError, match=r"bad\.toml: is not TOML: .*line 2"):
        PxrsConfig.from_toml(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="cannot be read"):
        PxrsConfig.from_toml(path)


def test_arguments_go_before_variables_before_the_file(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PXRS_NUM_PARTITIONS", "32")
    monkeypatch.setenv("PXRS_NAME", "123")
    monkeypatch.setenv("PXRS_GROUPS__BILLING__CONSUMERS", "3")
    monkeypatch.setenv("PXRS_QUEUES__EU_ORDERS_2__DURABILITY", "memory")
    monkeypatch.setenv("PXRS_QUEUES__fresh__RETENTION_PASSED", "true")
    config = PxrsConfig.from_toml(file)
    assert (config.name, config.num_partitions) == ("123", 32)
    assert config.groups["billing"].consumers == 3
    assert config.groups["billing"].handler == "shop.handlers:charge"
    assert config.queues["eu.orders-2"].durability == "memory"
    assert config.queues["fresh"].retention_passed is True
    argued = PxrsConfig.from_toml(
        file, num_partitions=4, groups={"billing": GroupConfig(queue="payments", consumers=9)}
    )
    assert argued.num_partitions == 4
    assert argued.groups["billing"].consumers == 9
    assert argued.groups["billing"].handler == "shop.handlers:charge"
    with pytest.raises(ConfigError, match=r"PXRS_GROUPS__BILLING__CONSUMERS: .*queue: is missing"):
        PxrsConfig()
    monkeypatch.delenv("PXRS_GROUPS__BILLING__CONSUMERS")
    assert PxrsConfig().num_partitions == 32
    assert PxrsConfig(num_partitions=2).num_partitions == 2


def test_a_wrong_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PXRS_NUM_PARTITIONS", "many")
    with pytest.raises(ConfigError, match="PXRS_NUM_PARTITIONS: num_partitions = 'many': must be"):
        PxrsConfig()


def test_variables_of_which_one_stands_inside_of_what_another_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PXRS_GROUPS", "billing")
    monkeypatch.setenv("PXRS_GROUPS__BILLING__CONSUMERS", "3")
    with pytest.raises(ConfigError, match="CONSUMERS: another variable says 'billing' for all of"):
        PxrsConfig()


def test_variables_that_name_no_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PXRS_TEST_ORACLE_DSN", "somewhere")
    assert PxrsConfig() == PxrsConfig()
    monkeypatch.setenv("PXRS_NUM_PARTITONS", "8")
    with pytest.raises(ConfigError, match=r"PARTITONS: .*did you mean PXRS_NUM_PARTITIONS"):
        PxrsConfig()
