"""What Triton needs of a machine: told where it is missing, and Triton itself fails there."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from engine.kernels.needs import Lack, Toolchain, too_old, why_not


@pytest.fixture
def whole(tmp_path: Path) -> Toolchain:
    """A machine that has everything."""
    for name in ("gcc", "Python.h", "ldconfig"):
        (tmp_path / name).touch(0o755)
    (tmp_path / "ldconfig").write_text("#!/bin/sh\necho '\tlibcuda.so.1 (libc6,x86-64) => /lib/libcuda.so.1'\n")
    return Toolchain(None, str(tmp_path), tmp_path, tmp_path / "ldconfig")


@pytest.mark.parametrize(
    ("name", "said", "package"),
    [
        ("gcc", "gcc or clang", "gcc libc6-dev"),
        ("Python.h", "no Python.h", "python3-dev"),
        ("ldconfig", "no", "libc-bin"),
    ],
)
def test_each_lack_is_named_with_its_package(whole: Toolchain, name: str, said: str, package: str) -> None:
    assert whole.lacks() == []
    (whole.include / name).unlink()
    [lack] = whole.lacks()
    assert said in lack.what
    assert lack.remedy == f"sudo apt-get install {package}"
    assert lack.what in why_not(OSError("anything"), [lack])
    assert lack.remedy in why_not(OSError("anything"), [lack])


def test_a_driver_that_ldconfig_does_not_list_is_told(whole: Toolchain) -> None:
    whole.ldconfig.write_text("#!/bin/sh\necho none\n")
    [lack] = whole.lacks()
    assert lack.what == "no libcuda.so.1 by ldconfig"
    (whole.include / "libcuda.so.1").touch()
    assert replace(whole, libraries=(whole.include,)).lacks() == []


def test_as_triton_does_clang_serves_without_gcc_and_cc_comes_before_both(whole: Toolchain) -> None:
    (whole.include / "gcc").rename(whole.include / "clang")
    assert whole.lacks() == []
    [lack] = replace(whole, cc="icc").lacks()
    assert "CC=icc" in lack.what
    assert "unset CC" in lack.remedy
    assert replace(whole, cc=str(whole.include / "clang")).lacks() == []


def test_another_failure_is_told_in_its_own_words_of_one_line() -> None:
    assert why_not(RuntimeError("no kernel image\nand hints"), []).endswith("here: no kernel image")
    failed = subprocess.CalledProcessError(1, ["/usr/bin/gcc", "/tmp/a/main.c", "-O3"])
    assert (
        "here: /usr/bin/gcc failed with exit status 1. To use the GPU: sudo apt-get install gcc libc6-dev python3-dev"
        in why_not(failed, [])
    )
    assert why_not(ValueError(), []).endswith("here: ValueError"), "no package mends that"
    assert "set TRITON_CACHE_DIR" in why_not(PermissionError(13, "Permission denied", "/root/.triton"), [])


def test_cards_below_8_0_are_too_old() -> None:
    assert "T4 has compute capability 7.5" in too_old("T4", (7, 5))
    assert too_old("GTX 1080", (6, 1))
    assert not any(too_old("card", capability) for capability in ((8, 0), (8, 6), (9, 0), (12, 0)))


BUILDING = """
import sys, sysconfig
from engine.kernels.needs import Toolchain
from triton.runtime.build import compile_module_from_src
own = sysconfig.get_paths
sysconfig.get_paths = lambda *a, **k: {**own(*a, **k), "include": sys.argv[1]}
sysconfig.get_path = lambda name, *a, **k: sysconfig.get_paths(*a, **k)[name]
print([lack.what for lack in Toolchain.here().lacks()], flush=True)
compile_module_from_src(sys.argv[2], "x")
"""
MODULE = """
#include <Python.h>
static struct PyModuleDef told = {PyModuleDef_HEAD_INIT, "x"};
PyMODINIT_FUNC PyInit_x(void) { return PyModule_Create(&told); }
"""


@pytest.mark.parametrize("broken", ["nothing", "no compiler", "no such CC", "no Python.h"])
def test_triton_fails_where_something_is_lacking_and_only_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    pytest.importorskip("triton")
    (tmp_path / "libcuda.so.1").touch()
    monkeypatch.setenv("TRITON_LIBCUDA_PATH", str(tmp_path))  # only the link of the driver's own module needs it
    monkeypatch.delenv("CC", raising=False)
    if Toolchain.here().lacks():
        pytest.skip("this machine lacks what Triton builds with")
    environment = os.environ | {"TRITON_CACHE_DIR": str(tmp_path)}
    if broken == "no compiler":
        environment["PATH"] = str(tmp_path)
    if broken == "no such CC":
        environment["CC"] = "no-such-compiler"
    include = tmp_path if broken == "no Python.h" else Toolchain.here().include
    command = [sys.executable, "-c", BUILDING, str(include), MODULE]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    told = done.stdout.strip()
    assert (told == "[]") is (broken == "nothing"), told
    assert (done.returncode == 0) is (broken == "nothing"), done.stderr


def test_lacks_are_joined_in_one_sentence() -> None:
    words = why_not(OSError("it said"), [Lack("no a", "get a"), Lack("no b", "get b")])
    assert "it finds no a and no b (it said). To use the GPU: get a; get b" in words
