"""Write access to the registry is no way to run code in the cluster."""

from __future__ import annotations

import base64
import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from pxrs_ray.store import open_store
from tests.actors.conftest import Stage, send
from tests.actors.recording import Recorder, eventually

pytestmark = pytest.mark.ray


class Evil:
    """Whoever unpickles it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mknod, (str(self.path),)


def test_a_handler_that_somebody_wrote_into_the_registry_is_not_run(stage: Stage) -> None:
    from pxrs_ray.actors.client.topology import deploy

    topology = stage.deploy(partitions=2)
    topology.group("g", queue="q").start(Recorder(stage.notes), consumers=1)
    send(topology, 4)
    eventually(lambda: topology.group("g").lag() == 0)
    topology.shutdown()

    trap = stage.folder / "trapped"
    store = open_store(stage.config(name=topology.name).store_url)
    key = f"{topology.name}/g"
    sealed = store.documents(key)["replicas"]
    seal, _, text = sealed.rpartition(":{")
    supervisor = json.loads("{" + text)
    supervisor["handler"]["pickled"] = base64.b64encode(pickle.dumps(Evil(trap))).decode()
    generation = store.lead(key, 2, "somebody else").generation
    store.put_document(key, generation, "replicas", f"{seal}:{json.dumps(supervisor)}")
    store.close()

    again = deploy(stage.config(partitions=2, name=topology.name))
    group = again.group("g")
    assert "no seal of this topology" in group.status().problem
    with pytest.raises(Exception, match="start"):
        group.scale(1)
    assert not trap.exists()
    # What heals it: the handler is given anew.
    group.start(Recorder(stage.notes), consumers=1)
    send(again, 4, first=4)
    eventually(lambda: again.group("g").lag() == 0)
    assert group.status().problem == "" and not trap.exists()


def test_our_own_word_is_taken_after_a_shutdown(stage: Stage) -> None:
    from pxrs_ray.actors.client.topology import deploy

    topology = stage.deploy(partitions=2)
    topology.group("g", queue="q").start(Recorder(stage.notes), consumers=1)
    topology.shutdown()
    again = deploy(stage.config(partitions=2, name=topology.name))
    assert again.group("g").status().problem == ""
    again.group("g").scale(1)
    send(again, 4)
    eventually(lambda: again.group("g").lag() == 0)
