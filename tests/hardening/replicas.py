"""A fleet whose replicas are killed under streams over HTTP, at random moments: each stream says what it would have."""

import traceback
from random import Random

from engine import EngineProcess, ModelSpec
from engine.serving import ServingSettings
from engine.serving.fleet import local_fleet
from tests.engine.serving.conftest import serving
from tests.engine.serving.fleet.conftest import CONFIG, whole
from tests.engine.serving.fleet.disturbed import calm, client, lose_one
from tests.hardening.found import Found
from tests.waiting import until

LATEST = 0.5  # seconds after the streams were sent, when most are over on an idle machine


def kill_replicas(count: int, seed: int, begin: int = 0) -> Found:
    """So many kills, from this number on, of one fleet of two."""
    found = Found()
    with EngineProcess(ModelSpec("demo"), CONFIG, threads=1) as alone:
        want = calm(alone)
    with (
        local_fleet(ModelSpec("demo"), CONFIG, 2, threads=1) as fleet,
        serving(fleet, ServingSettings(port=0)) as server,
        client(server) as http,
    ):
        for number in range(begin, begin + count):
            try:
                until(lambda: whole(fleet))
                lose_one(fleet, http, want, Random(f"replicas/{seed}/{number}").uniform(0, LATEST))
                found.add("replicas", number, "kept", "")
            except Exception:
                found.add("replicas", number, "defect", traceback.format_exc())
    return found
