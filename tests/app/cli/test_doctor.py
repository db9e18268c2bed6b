"""`app.cli.doctor`: what it says of this machine, and of machines that lack something."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from packaging.requirements import Requirement

import resources
from app.cli.doctor import qt
from app.cli.doctor.command import examine, render
from app.cli.doctor.finding import Finding, Status
from app.cli.doctor.gpu import cuda_finding, gpu_finding, nccl_finding, toolchain_findings, torch_findings
from app.cli.doctor.libraries import library_finding, requirements
from app.cli.doctor.machine import cpu_finding, python_finding
from app.cli.doctor.models import demo_model_finding
from app.cli.doctor.qt import display_finding, qt_failure
from engine.core import Toolchain

QT = Requirement("PySide6-Essentials>=6.9,!=6.11.0,!=6.11.1,<6.12")


@pytest.fixture(scope="module")
def findings() -> list[Finding]:
    return examine()


def found(findings: list[Finding], topic: str) -> Finding:
    return next(finding for finding in findings if finding.topic == topic)


def test_it_covers_the_machine_the_libraries_the_window_and_the_models(findings: list[Finding]) -> None:
    topics = {finding.topic for finding in findings}
    assert {
        "system",
        "CPU",
        "memory",
        "Python",
        "torch",
        "CUDA",
        "Qt",
        "display",
        "demo model",
        "cached models",
    } <= topics
    assert all(finding.detail for finding in findings)


def test_what_is_missing_says_what_it_costs(findings: list[Finding]) -> None:
    assert all(finding.cost for finding in findings if finding.status is Status.MISSING)


def test_the_libraries_these_tests_run_on_are_fit(findings: list[Finding]) -> None:
    assert {name: found(findings, name).status for name in ("torch", "transformers", "numpy")} == {
        "torch": Status.OK,
        "transformers": Status.OK,
        "numpy": Status.OK,
    }


@pytest.mark.skipif(shutil.which("nvidia-smi") is not None, reason="there is a GPU here")
def test_a_machine_without_a_gpu_is_told_what_that_costs(findings: list[Finding]) -> None:
    gpu = found(findings, "GPU")
    assert gpu.status is Status.MISSING
    assert "on the CPU" in gpu.cost
    assert found(findings, "CUDA").status is Status.NOTE


def test_qt_starts_where_the_tests_of_the_window_run(findings: list[Finding]) -> None:
    pytest.importorskip("PySide6")
    assert found(findings, "Qt").status is Status.OK


@pytest.mark.parametrize("version", ["6.9.0", "6.10.2", "6.11.3"])
def test_a_version_within_the_range_is_fit(version: str) -> None:
    assert library_finding(QT, version) == Finding("PySide6-Essentials", Status.OK, version)


@pytest.mark.parametrize("version", ["6.8.3", "6.11.0", "6.12.0"])
def test_a_version_outside_the_range_is_named_with_its_cost_and_the_way_back(version: str) -> None:
    finding = library_finding(QT, version)
    assert finding.status is Status.MISSING
    assert version in finding.detail
    assert "window" in finding.cost
    assert finding.remedy.startswith('pip install "PySide6-Essentials')


def test_a_library_that_is_not_there_costs_something_and_an_extra_is_only_noted() -> None:
    assert library_finding(Requirement("bitsandbytes"), None).status is Status.MISSING
    assert library_finding(Requirement("autoawq>=0.2.9"), None).status is Status.NOTE


@pytest.mark.parametrize("version", ["2.13.0+cpu", "2.11.0a0+vendor", "2.12.1"])
def test_builds_of_torch_with_a_label_are_taken_for_their_release(version: str) -> None:
    assert library_finding(Requirement("torch>=2.11,<2.14"), version).status is Status.OK


def test_every_library_of_the_project_has_a_known_cost_but_the_reader_of_versions() -> None:
    names = {requirement.name for requirement in requirements()}
    assert {"torch", "PySide6-Essentials", "nvidia-ml-py", "autoawq", "torchao", "llguidance"} <= names
    assert not any(library_finding(requirement, None).cost == "" for requirement in requirements())


def test_several_gpus_need_nccl_for_a_model_over_them() -> None:
    assert "2.27.5: a model can be split over 2 GPUs" in nccl_finding(2, (2, 27, 5)).detail
    lacking = nccl_finding(4, None)
    assert lacking.status is not Status.OK
    assert "one of the 4 GPUs" in lacking.cost


@pytest.mark.parametrize(
    ("built_for", "usable", "has_gpu", "status"),
    [
        ("13.0", True, True, Status.OK),
        (None, False, False, Status.NOTE),
        ("13.0", False, False, Status.NOTE),
        (None, False, True, Status.MISSING),
        ("13.0", False, True, Status.MISSING),
    ],
)
def test_torch_without_cuda_matters_only_beside_a_gpu(
    built_for: str | None, usable: bool, has_gpu: bool, status: Status
) -> None:
    finding = cuda_finding("2.13.0", built_for, usable, has_gpu)
    assert finding.status is status
    assert bool(finding.remedy) is (status is Status.MISSING)


@pytest.mark.parametrize("visible", ["", "-1", "7"])
def test_gpus_that_a_variable_hides_are_no_fault_of_the_driver(visible: str) -> None:
    finding = cuda_finding("2.13.0", "13.0", usable=False, has_gpu=True, visible=visible)
    assert finding.status is Status.MISSING
    assert f'CUDA_VISIBLE_DEVICES="{visible}"' in finding.detail
    assert "unset CUDA_VISIBLE_DEVICES" in finding.remedy
    assert "driver" not in finding.remedy
    shown = cuda_finding("2.13.0", "13.0", usable=True, has_gpu=True, visible="0")
    assert shown.status is Status.OK
    of_cpus = cuda_finding("2.13.0", None, usable=False, has_gpu=True, visible=visible)
    assert "CPU build" in of_cpus.detail


def test_a_card_that_is_too_old_counts_as_none() -> None:
    old, new = (gpu_finding(0, "Tesla T4", "15 GiB", capability) for capability in ((7, 5), (8, 9)))
    assert (old.status, new.status) == (Status.MISSING, Status.OK)
    assert "compute capability 7.5" in old.detail
    assert "on the CPU" in old.cost


@pytest.mark.parametrize(
    ("lost", "has_gpu", "said"),
    [
        ((), True, [("C compiler", "", "")]),
        (("gcc",), True, [("Triton's tools", "no C compiler", "gcc libc6-dev")]),
        (("Python.h", "ldconfig"), True, [("Triton's tools", "Python.h", "python3"), ("", "ldconfig", "libc-bin")]),
        (("Python.h", "ldconfig"), False, [("C compiler", "", "")]),
        (("gcc",), False, [("C compiler", "none", "gcc libc6-dev")]),
    ],
)
def test_what_triton_builds_with_is_looked_for_beside_a_gpu(
    tmp_path: Path, lost: tuple[str, ...], has_gpu: bool, said: list[tuple[str, str, str]]
) -> None:
    for name in {"gcc", "Python.h", "ldconfig"} - set(lost):
        (tmp_path / name).write_text("#!/bin/sh\necho libcuda.so.1\n")
        (tmp_path / name).chmod(0o755)
    told = toolchain_findings(Toolchain(None, str(tmp_path), tmp_path, tmp_path / "ldconfig"), has_gpu)
    for finding, (topic, what, package) in zip(told, said, strict=True):
        assert topic in finding.topic
        assert what in finding.detail
        assert package in finding.remedy
        assert (finding.status is Status.MISSING) is bool(finding.cost) is bool(package)


def test_what_triton_builds_with_is_looked_for_where_torch_alone_finds_the_gpu(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As without nvidia-ml-py."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(Toolchain, "here", lambda: Toolchain(None, str(tmp_path), tmp_path))
    found = torch_findings(has_gpu=False)
    assert "Triton's tools" in [finding.topic for finding in found if finding.status is Status.MISSING]


def test_a_cpu_says_which_instruction_sets_it_lacks() -> None:
    assert (
        cpu_finding("Xeon", 8, frozenset({"avx2", "avx512f", "amx_bf16"})).detail
        == "Xeon, 8 cores, AVX2, AVX-512, AMX bf16"
    )
    assert cpu_finding("Core", 1, frozenset({"avx2"})).status is Status.NOTE
    assert cpu_finding("Atom", 4, frozenset({"sse2"})).status is Status.MISSING
    assert cpu_finding("arm64", 8, frozenset()).status is Status.OK


def test_an_old_python_is_refused() -> None:
    assert python_finding((3, 10, 14)).status is Status.MISSING
    assert python_finding((3, 11, 0)).status is Status.OK


def test_a_missing_qt_library_is_named_with_its_debian_package() -> None:
    errors = "ImportError: libEGL.so.1: cannot open shared object file: No such file or directory"
    finding = qt_failure(f"Traceback (most recent call last):\n{errors}\n")
    assert finding.detail == "finds no libEGL.so.1"
    assert finding.remedy == "sudo apt-get install libegl1"


@pytest.mark.parametrize("command", [[], ["replay", "RUN"]])
def test_a_command_without_qts_libraries_names_their_packages(tmp_path: Path, command: list[str]) -> None:
    """A PySide6 that ends as the real one does where libEGL is not installed."""
    words = "libEGL.so.1: cannot open shared object file: No such file or directory"
    (tmp_path / "PySide6").mkdir()
    (tmp_path / "PySide6" / "__init__.py").write_text(f"raise ImportError({words!r})")
    (tmp_path / "RUN").touch()
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{os.getcwd()}", "DISPLAY": ":7"}
    run = [sys.executable, "-m", "app", *(str(tmp_path / part) if part == "RUN" else part for part in command)]
    done = subprocess.run(run, env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == "batchscope: Qt finds no libEGL.so.1: sudo apt-get install libegl1"
    assert "Traceback" not in done.stderr


def test_libraries_that_the_loader_does_not_find_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(qt, "qt_packages", lambda: {"libc.so.6": "libc6", "libnowhere-77.so.1": "libnowhere"})
    assert qt_failure(qt.lost_libraries()).remedy == "sudo apt-get install libnowhere"


def test_a_qt_failure_without_a_library_keeps_its_own_words() -> None:
    assert qt_failure("one\nModuleNotFoundError: No module named 'PySide6'\n").detail.endswith(
        "No module named 'PySide6'"
    )


def test_a_display_is_named_by_its_variable() -> None:
    assert display_finding({"DISPLAY": ":1"}).detail == "DISPLAY=:1"
    assert "offscreen" in display_finding({}).cost


def test_the_demo_model_is_found_with_its_weights_only(tmp_path: Path) -> None:
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "config.json").write_text("{}")
    assert demo_model_finding(tmp_path).status is Status.MISSING
    (tmp_path / "half" / "model.safetensors").write_bytes(bytes(1_500_000))
    assert demo_model_finding(tmp_path).detail == "half (1.5 MB)"


def test_the_shipped_demo_model_is_there() -> None:
    assert demo_model_finding(resources.path("models")).status is Status.OK


def test_the_text_shows_each_cost_below_its_finding_and_counts_them() -> None:
    text = render([Finding("Qt", Status.OK, "fine"), Finding("display", Status.MISSING, "none", "no window", "log in")])
    assert text.splitlines() == [
        "ok       Qt       fine",
        "missing  display  none",
        "                  costs: no window",
        "                  to do: log in",
        "",
        "1 ok · 1 missing · 0 note",
    ]


def test_findings_go_through_json_unchanged(findings: list[Finding]) -> None:
    entries = json.loads(json.dumps([asdict(finding) for finding in findings]))
    assert [Finding(**{**entry, "status": Status(entry["status"])}) for entry in entries] == findings
