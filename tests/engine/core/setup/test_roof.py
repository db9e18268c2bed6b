"""The roof is measured quickly, once a week, and read off between the sizes that were measured."""

import json
import math
import time
from pathlib import Path

import pytest
import torch

from engine import Engine, ModelSpec
from engine.core.setup import roof as roof_module
from engine.core.setup.roof import CPU_SETS, cache_file, measure_roof, roof_of
from engine.models.loading import load
from engine.trace import Roof

FLOAT32 = torch.float32


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache's file, in a data folder that is not there yet."""
    monkeypatch.setenv("BATCHSCOPE_DATA", str(tmp_path / "data"))
    return tmp_path / "data" / "cache" / "roofs.json"


def test_a_measured_roof_is_plausible() -> None:
    roof = measure_roof(torch.device("cpu"), FLOAT32, 256, 768)
    assert roof.working_sets == tuple(sorted(roof.working_sets))
    assert set(roof.working_sets) <= set(CPU_SETS)
    assert all(1e8 < bandwidth < 1e13 for bandwidth in roof.bandwidths)
    assert 1e9 < roof.operations < 1e15
    assert max(roof.bandwidths) >= roof.bandwidths[-1], "small sets are in the cache"


def test_the_rates_are_those_of_the_operations_they_stand_for() -> None:
    """Against one timing of each, written out; on a busy machine a factor of four is noise."""
    roof = measure_roof(torch.device("cpu"), FLOAT32, 512, 512)
    source, target = torch.ones(1 << 20), torch.ones(1 << 20)
    x, w = torch.randn(512, 512), torch.randn(512, 512)
    times: dict[str, list[float]] = {"copy": [], "product": []}
    for _ in range(200):
        begun = time.perf_counter()
        target.copy_(source)
        middle = time.perf_counter()
        x @ w
        times["copy"].append(middle - begun)
        times["product"].append(time.perf_counter() - middle)
    bandwidth, rate = 8 * (1 << 20) / min(times["copy"]), 2 * 512**3 / min(times["product"])
    assert 1 / 4 < roof.bandwidth_at(8 << 20) / bandwidth < 4
    assert 1 / 4 < roof.operations / rate < 8, "packed layers may be faster"


def test_bandwidth_between_two_sizes_goes_with_the_logarithm_of_the_size() -> None:
    roof = Roof((1024, 4096, 65536), (100.0, 60.0, 20.0), 1e9)
    assert roof.bandwidth_at(1024) == 100
    assert roof.bandwidth_at(2048) == pytest.approx(80)
    assert roof.bandwidth_at(4096 * 4) == pytest.approx(40)
    assert roof.bandwidth_at(0) == 100, "below the smallest as at the smallest"
    assert roof.bandwidth_at(1e12) == 20
    assert math.isclose(roof.bandwidth_at(4096 * math.sqrt(2)), 55)


def test_it_is_measured_once_and_again_after_a_week(kept: Path) -> None:
    model = load(ModelSpec("demo"))
    first = roof_of(model, 1)
    assert first is not None
    assert cache_file() == kept
    assert roof_of(model, 1) == first, "read back exactly, `seconds` included"
    assert roof_of(model, 2) != first, "another number of threads is another roof"
    other = roof_of(load(ModelSpec("demo-moe")), 1)
    assert other is not None
    assert other.bandwidths == first.bandwidths, "no model changes how fast copies are"
    assert other.operations != first.operations
    stored = json.loads(kept.read_text())
    assert len(stored) == 2 * 2 + 1
    for entry in stored.values():
        entry["measured"] -= 8 * 24 * 3600
    kept.write_text(json.dumps(stored))
    again = roof_of(model, 1)
    assert again.seconds != first.seconds
    assert max(entry["measured"] for entry in json.loads(kept.read_text()).values()) > time.time() - 60


@pytest.mark.parametrize("text", ["", "no JSON", "[]", '{"a": 1}'])
def test_a_broken_cache_is_written_anew(kept: Path, text: str) -> None:
    kept.parent.mkdir(parents=True)
    kept.write_text(text)
    model = load(ModelSpec("demo"))
    assert roof_of(model, 1) == roof_of(model, 1)


def test_a_damaged_entry_is_measured_again(kept: Path) -> None:
    model = load(ModelSpec("demo"))
    roof_of(model, 1)
    copies, products = json.loads(kept.read_text())
    damaged = {copies: {"measured": time.time(), "bandwidths": [1.0]}, products: {"measured": "late"}}
    kept.write_text(json.dumps(damaged))
    again = roof_of(model, 1)
    assert again is not None
    assert len(again.bandwidths) > 1
    assert again.operations > 0


def test_what_was_measured_with_less_room_is_measured_again(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roof_module.machine, "memory", lambda: (1 << 34, 8 << 20))
    small, model = roof_of(load(ModelSpec("demo")), 1), load(ModelSpec("demo-draft"))
    monkeypatch.undo()
    monkeypatch.setenv("BATCHSCOPE_DATA", str(kept.parents[1]))
    full = roof_of(model, 1)
    assert small is not None
    assert full is not None
    assert len(small.working_sets) < len(full.working_sets) == len(CPU_SETS)


def test_without_room_to_measure_there_is_no_roof_and_the_engine_starts(
    kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(roof_module, "CPU_SETS", (1 << 62,))  # more than any allocator has
    with Engine(ModelSpec("demo"), threads=1) as engine:
        assert engine.trace.header.roof is None
        assert engine.prepared.activations > 0
    assert not kept.exists()


def test_a_folder_that_cannot_be_written_is_no_reason_to_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("BATCHSCOPE_DATA", str(tmp_path / "file"))
    assert roof_of(load(ModelSpec("demo")), 1).operations > 0


def test_without_a_folder_of_its_own_it_follows_the_desktop(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("BATCHSCOPE_DATA")
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert cache_file() == tmp_path / "batchscope" / "cache" / "roofs.json"


def test_the_header_of_a_trace_has_the_roof(demo: Engine) -> None:
    roof = demo.trace.header.roof
    assert roof is not None
    assert roof == demo.roof
    assert roof.seconds < 5, "a fraction of a second where nothing else runs"
