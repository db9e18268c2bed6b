"""What stands around a server: the dashboard, the container, the service, and the page that tells of them."""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from app.__main__ import parser
from engine.config.specs import EngineConfig
from engine.serving import RequestLogSettings
from engine.serving.metrics import Observer
from engine.serving.metrics.exposition import exposition
from engine.serving.request_log import RequestLog
from engine.trace import Trace
from tests.engine.trace.hand_made import header

ROOT = Path(__file__).parents[2]
PACKAGING = ROOT / "packaging"
UNIT = (PACKAGING / "batchscope.service").read_text()
CONTAINER = (PACKAGING / "Containerfile").read_text()
PAGE = (PACKAGING / "serving.md").read_text()


def panels() -> list[dict[str, Any]]:
    return json.loads((PACKAGING / "grafana.json").read_text())["panels"]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The names and labels that a server with a request log prints."""
    folder = tmp_path_factory.mktemp("log")
    log = RequestLog(RequestLogSettings(str(folder / "requests.db"), folder / "spool"))
    text = exposition(Observer(Trace([header(EngineConfig())]), "demo"), log.collect()).decode()
    log.close()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {sample.name for sample in samples} | {label for sample in samples for label in sample.labels}


def test_the_dashboard_asks_for_what_a_server_tells(told: set[str]) -> None:
    asked = [target["expr"] for panel in panels() for target in panel.get("targets", [])]
    assert len(asked) > 30
    names = {name for expression in asked for name in re.findall(r"\b(?:vllm|batchscope):\w+", expression)}
    assert len(names) > 20
    assert names <= told, names - told
    labels = {
        label
        for expression in asked
        for group in re.findall(r"by \(([^)]*)\)", expression)
        for label in group.split(", ")
    }
    assert labels <= told
    legends = [target["legendFormat"] for panel in panels() for target in panel.get("targets", [])]
    assert {label for legend in legends for label in re.findall(r"{{(\w+)}}", legend)} <= told
    histograms = {
        name.removesuffix("_bucket") for name in told if name.startswith("vllm:") and name.endswith("_bucket")
    }
    shown = {name.removesuffix("_bucket") for name in names}
    assert histograms - shown == {"vllm:request_inference_time_seconds"}, "prefill and decode are shown by themselves"


def test_its_panels_lie_beside_each_other_on_the_grid() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells
    assert len({panel["id"] for panel in panels()}) == len(panels())


def options_of(command: str) -> set[str]:
    subparsers = next(action for action in parser()._actions if isinstance(action, argparse._SubParsersAction))
    return set(subparsers.choices[command]._option_string_actions)


def test_every_option_that_is_named_is_one_of_the_command() -> None:
    known = options_of("serve")
    exec_start = re.findall(r"(--[a-z][\w-]*)", "\n".join(line for line in UNIT.splitlines() if "OPTIONS" in line))
    entry = re.findall(r'"(--[a-z][\w-]*)"', CONTAINER)
    orders = [line for line in PAGE.splitlines() if line.startswith("batchscope serve")]
    page = [option for order in orders for option in re.findall(r"--[a-z][\w-]*", order)]
    manifest = re.findall(r'"(--[a-z][\w-]*)"', PAGE)
    assert min(map(len, (exec_start, entry, page, manifest))) >= 2
    assert {*exec_start, *entry, *page, *manifest} <= known


def test_the_containers_rules_hold() -> None:
    assert re.findall(r"^USER (\d+):", CONTAINER, re.M) == ["10001"]
    assert CONTAINER.rindex("\nUSER ") < CONTAINER.index("\nENTRYPOINT ")
    assert "HEALTHCHECK" in CONTAINER
    assert "HF_HUB_OFFLINE=1" in CONTAINER
    instructions = re.findall(r"^([A-Z]+) ", CONTAINER, re.M)
    assert set(instructions) <= set(
        "ARG FROM ENV RUN WORKDIR COPY USER VOLUME EXPOSE STOPSIGNAL HEALTHCHECK ENTRYPOINT CMD".split()
    )
    for source in re.findall(r"^COPY (?!--from)(.+) \S+$", CONTAINER, re.M):
        assert all((ROOT / name).exists() for name in source.split()), source
    for words in re.findall(r"^(?:ENTRYPOINT|CMD|    CMD) (\[.*\])$", CONTAINER, re.M):
        assert json.loads(words)
    (extras,) = re.findall(r'install "\.\[([\w,]+)\]"', CONTAINER)
    assert {"serve", "postgres", "otel"} <= set(extras.split(","))


@pytest.mark.timeout(600)
def test_the_image_is_built_where_the_tools_are() -> None:
    tool = shutil.which("buildah") or shutil.which("podman")
    if tool is None or not os.environ.get("BATCHSCOPE_BUILD_IMAGE"):
        pytest.skip("needs buildah or podman, a registry, and BATCHSCOPE_BUILD_IMAGE=1")
    order = [tool, "build", "-f", "packaging/Containerfile", "-t", "batchscope-test", "."]
    subprocess.run(order, cwd=ROOT, check=True)


@pytest.fixture(scope="module")
def unit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a program and a file of variables that are here."""
    folder = tmp_path_factory.mktemp("systemd")
    (folder / "env").touch()
    path = folder / "batchscope.service"
    there = UNIT.replace("/opt/batchscope/bin/batchscope", sys.executable).replace(
        "/etc/batchscope.env", f"{folder}/env"
    )
    path.write_text(there)
    return path


def test_the_service_is_what_systemd_takes_and_hardened(unit: Path) -> None:
    tool = shutil.which("systemd-analyze")
    if tool is None:
        pytest.skip("systemd-analyze is not here")
    checked = subprocess.run([tool, "verify", str(unit)], capture_output=True, text=True, check=False)
    said = [line for line in checked.stderr.splitlines() if unit.name in line]  # of other units it may say something
    assert (checked.returncode, said) == (0, [])
    order = [tool, "security", "--offline=true", "--threshold=20", "--no-pager", str(unit)]
    exposed = subprocess.run(order, capture_output=True, text=True, check=False)
    assert exposed.returncode == 0, exposed.stdout[-300:]


def test_the_manifests_of_the_page_are_yaml() -> None:
    found = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.S)]
    assert len(found) == 2
    pod = found[1]["spec"]
    assert pod["securityContext"]["runAsUser"] == 10001
    assert pod["terminationGracePeriodSeconds"] > 600


def test_what_it_links_to_is_there() -> None:
    for path in re.findall(r"`?(packaging/[\w.]+)`?", PAGE):
        assert (ROOT / path).exists(), path
