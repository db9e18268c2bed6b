"""What is told of the machine, with and without a GPU's gauges."""

import mmap

from engine.core.machine import Gauge, describe, resident, versions


def test_a_gauge_without_a_gpu_reads_processor_and_memory() -> None:
    reading = Gauge().read(1.5)
    assert reading.time == 1.5
    assert reading.cpu_percent >= 0
    assert 0 < reading.memory < reading.memory_total
    assert 0 < reading.memory_free < reading.memory_total
    assert reading.gpu_percent == -1


def test_the_machine_and_the_versions_are_named() -> None:
    machine = describe(threads=3)
    assert machine.threads == 3
    assert machine.cpu
    assert machine.cores >= 1
    assert {"python", "torch", "transformers"} <= versions().keys()


def test_what_this_process_holds_is_told() -> None:
    before = resident()
    with mmap.mmap(-1, 64 << 20) as kept:  # fresh from the system, whatever memory this process has at hand
        kept.write(b"x" * (64 << 20))
        assert 40 << 20 < resident() - before < 256 << 20
