"""What NVML tells of GPUs: answers that fail alone, cards by UUID, and what counts as a driver. The library is stood in
for by its handful of functions: there is none without a driver."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from engine.core.machine import Gauge, nvml
from engine.core.machine.nvml import Card, card_of, nvidia_driver, visible
from engine.core.setup import card as of_torch

UUIDS = "GPU-aa11", "GPU-aa22", "GPU-bb33"
ANSWERS: dict[str, Any] = {
    "nvmlDeviceGetMemoryInfo": SimpleNamespace(used=3, free=5, total=8),
    "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=40),
    "nvmlDeviceGetPowerUsage": 120_500,
    "nvmlDeviceGetTemperature": 61,
    "nvmlDeviceGetDisplayActive": 1,
    "nvmlDeviceGetCudaComputeCapability": [7, 5],
    "nvmlDeviceGetMigMode": [0, 0],
    "nvmlDeviceGetComputeRunningProcesses": [
        SimpleNamespace(pid=7, usedGpuMemory=100),
        SimpleNamespace(pid=8, usedGpuMemory=None),
    ],
}
READ = {
    "nvmlDeviceGetMemoryInfo": {"gpu_memory": 3, "gpu_memory_total": 8},
    "nvmlDeviceGetUtilizationRates": {"gpu_percent": 40.0},
    "nvmlDeviceGetPowerUsage": {"gpu_watts": 120.5},
    "nvmlDeviceGetTemperature": {"gpu_celsius": 61.0},
}


class NotSupported(Exception):
    pass


def library(unsupported: set[str] = frozenset()) -> Any:  # type: ignore[assignment]
    """NVML of a machine with the cards of UUIDS; a handle is a UUID."""

    def answer(question: str) -> Any:
        def ask(handle: str, *_: object) -> Any:
            if question in unsupported:
                raise NotSupported
            return ANSWERS[question]

        return ask

    def by_uuid(uuid: str) -> str:
        if uuid not in (*UUIDS, "MIG-cc44"):
            raise NotSupported
        return uuid

    asked = {question: answer(question) for question in ANSWERS}
    return SimpleNamespace(NVMLError=NotSupported, nvmlDeviceGetHandleByUUID=by_uuid, **asked)


def machine(lost: str = "") -> Any:
    """The library, and its list of cards; the `lost` one is on it and answers nothing."""

    def uuid(handle: str) -> str:
        if handle == lost:
            raise NotSupported
        return handle

    here = library({"nvmlDeviceGetMigMode"})
    here.nvmlDeviceGetCount = lambda: len(UUIDS)
    here.nvmlDeviceGetHandleByIndex = UUIDS.__getitem__
    here.nvmlDeviceGetUUID = uuid
    return here


@pytest.mark.parametrize("unsupported", [set(), *({question} for question in READ), set(READ)])
def test_a_question_that_a_card_does_not_answer_keeps_no_other_from_being_told(unsupported: set[str]) -> None:
    expected = {
        name: value for question in READ if question not in unsupported for name, value in READ[question].items()
    }
    card = Card(library(unsupported), UUIDS[0])
    assert card.load() == expected
    reading = Gauge(card).read(1.0)
    assert {name: getattr(reading, name) for name in expected} == expected
    assert reading.memory_total > 8
    assert (reading.gpu_percent >= 0) is ("gpu_percent" in expected)


def test_a_card_tells_what_a_process_holds_its_age_and_its_display() -> None:
    card, silent = Card(library(), UUIDS[0]), Card(library(set(ANSWERS)), UUIDS[0])
    assert (card.held_by(7), card.held_by(8), card.held_by(9)) == (100, 0, 0)
    assert card.memory() == (5, 8)
    assert card.drives_display()
    assert card.too_old()
    assert (silent.held_by(7), silent.memory(), silent.too_old()) == (0, None, False)


def test_a_card_in_wsl_drives_a_display_where_nvml_does_not_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = Card(library({"nvmlDeviceGetDisplayActive"}), UUIDS[0])
    monkeypatch.setattr(nvml, "WSL", tmp_path / "dxg")
    assert not silent.drives_display()
    (tmp_path / "dxg").touch()
    assert silent.drives_display()


def test_a_card_is_found_by_its_uuid_whatever_its_number() -> None:
    assert [card_of(uuid, library())._handle for uuid in ("bb33", "GPU-aa11", "cc44")] == [
        "GPU-bb33", "GPU-aa11", "MIG-cc44",
    ]  # fmt: skip
    with pytest.raises(NotSupported):
        card_of("dd55", library())


@pytest.mark.parametrize(
    ("told", "shown"),
    [
        (None, [0, 1, 2]),
        ("2,0", [2, 0]),
        (" 1 ", [1]),
        ("", []),
        ("0,-1,1", [0]),
        ("0,3,1", [0]),
        ("GPU-bb,GPU-aa11", [2, 0]),
        ("GPU-aa,1", []),  # two begin so
    ],
)
def test_what_cuda_shows_is_in_the_order_that_it_was_told(told: str | None, shown: list[int]) -> None:
    assert visible(told, UUIDS) == [UUIDS[index] for index in shown]
    assert visible("MIG-cc44", UUIDS) == ["MIG-cc44"]


@pytest.mark.parametrize(
    ("path", "answers", "expected"),
    [
        ("", True, False),
        ("proc/driver/nvidia/version", False, True),
        ("dev/nvidiactl", False, True),
        ("dev/dxg", True, True),  # WSL
        ("dev/dxg", False, False),  # its device is every maker's
    ],
)
def test_what_counts_as_a_driver(tmp_path: Path, path: str, answers: bool, expected: bool) -> None:
    if path:
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).touch()
    assert nvidia_driver(tmp_path, lambda: answers) is expected


@pytest.mark.parametrize(("devices", "uuid"), [(None, "GPU-aa11"), ("1,0", "GPU-aa22"), ("", None)])
def test_the_cards_of_this_process_are_those_that_cuda_shows(
    devices: str | None, uuid: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvml, "_library", machine)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if devices is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", devices)
    assert next((card._handle for card in nvml.cards()), None) == uuid


@pytest.mark.parametrize(("devices", "shown"), [(None, UUIDS[::2]), ("2,0", UUIDS[::-2]), ("1,0", UUIDS[:1])])
def test_a_gpu_that_does_not_answer_keeps_no_other_from_being_listed(
    devices: str | None, shown: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvml, "_library", lambda: machine(lost=UUIDS[1]))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if devices is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", devices)
    assert [card._handle for card in nvml.cards()] == list(shown)


def test_of_a_gpu_in_parts_the_first_is_shown_with_its_own_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def part_of(handle: str, place: int) -> str:
        if (handle, place) != (UUIDS[0], 3):  # the second GPU has none
            raise NotSupported
        return "MIG-cc44"

    def memory_of(handle: str) -> SimpleNamespace:
        return SimpleNamespace(free=1, total=2) if handle == "MIG-cc44" else ANSWERS["nvmlDeviceGetMemoryInfo"]

    here = machine()
    here.nvmlDeviceGetMigMode = lambda handle: [int(handle != UUIDS[2]), 0]
    here.nvmlDeviceGetMaxMigDeviceCount = lambda handle: 7
    here.nvmlDeviceGetMigDeviceHandleByIndex = part_of
    here.nvmlDeviceGetMemoryInfo = memory_of
    monkeypatch.setattr(nvml, "_library", lambda: here)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert [(card._handle, card.memory()) for card in nvml.cards()] == [("MIG-cc44", (1, 2)), (UUIDS[2], (5, 8))]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,MIG-cc44")
    assert [card._handle for card in nvml.cards()] == [UUIDS[2], "MIG-cc44"]


@pytest.mark.parametrize(
    ("nvlink", "apart", "words"),
    [
        (0, 10, "NVLink"),
        (5, 10, "PCIe, one switch"),
        (5, 30, "PCIe, one host bridge"),
        (None, 50, "PCIe, two processors"),
        (5, None, ""),
    ],
)
def test_two_cards_are_linked_as_nvml_says(nvlink: int | None, apart: int | None, words: str) -> None:
    def ask(answer: int | None) -> Any:
        def asked(*_: object) -> int:
            if answer is None:
                raise NotSupported
            return answer

        return asked

    constants = {"NVML_P2P_CAPS_INDEX_NVLINK": 2, "NVML_P2P_STATUS_OK": 0, "NVMLError": NotSupported}
    questions = {"nvmlDeviceGetP2PStatus": ask(nvlink), "nvmlDeviceGetTopologyCommonAncestor": ask(apart)}
    lib = SimpleNamespace(**constants, **questions)
    assert Card(lib, UUIDS[0]).linked_by(Card(lib, UUIDS[1])) == words


def test_a_device_of_torchs_is_found_by_its_uuid_and_not_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA counts the fastest first, and NVML by slot."""
    ours = {0: "bb33", 1: "aa11", 2: "dd55"}
    monkeypatch.setattr(nvml, "_library", machine)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda at: SimpleNamespace(uuid=ours[at.index]))
    found = [of_torch.card_of(torch.device("cuda", index)) for index in ours]
    assert [card and card._handle for card in found] == ["GPU-bb33", "GPU-aa11", None]
    assert of_torch.card_of(torch.device("cpu")) is None
