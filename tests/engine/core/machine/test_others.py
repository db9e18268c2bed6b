"""Whose processor time it is: real processes that compute."""

import subprocess
import sys
import time

import psutil
import pytest

from engine.core.machine import usable_cores
from engine.core.machine.others import OthersMeter

SPIN = "while True: pass"
ORPHAN = f"""
import subprocess, sys
print(subprocess.Popen([sys.executable, "-c", {SPIN!r}], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).pid)
"""
ROUNDING = 0.03  # the system counts in hundredths of a second, a core at a time


def shares(process: psutil.Process) -> tuple[float, float]:
    """What others took of the CPU in a second, and what this process took."""
    meter, before, begun = OthersMeter(), process.cpu_times().user, time.perf_counter()
    time.sleep(1.0)
    took, found = process.cpu_times().user - before, meter.read()
    assert found is not None
    return found, took / (time.perf_counter() - begun) / usable_cores()


def test_what_a_stranger_takes_is_others() -> None:
    started = subprocess.run([sys.executable, "-c", ORPHAN], capture_output=True, text=True, check=True)
    stranger = psutil.Process(int(started.stdout))
    try:
        if psutil.Process() in stranger.parents():
            pytest.skip("what a process leaves behind comes back to its first ancestor here")
        others, strangers = shares(stranger)
    finally:
        stranger.kill()
    assert strangers > ROUNDING, "it had no turn"
    assert others >= strangers - ROUNDING


def test_what_our_own_child_takes_is_ours() -> None:
    child = subprocess.Popen([sys.executable, "-c", SPIN])
    try:
        others, ours = shares(psutil.Process(child.pid))
    finally:
        child.kill()
        child.wait()
    assert ours > ROUNDING, "it had no turn"
    assert others <= 1 - ours + ROUNDING
