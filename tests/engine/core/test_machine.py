"""What is told of the machine, with and without a GPU's gauges."""

import mmap
from types import SimpleNamespace

from engine.core.machine import Gauge, describe, gpu_memory_of_process, resident, versions


def test_a_gauge_without_a_gpu_reads_processor_and_memory() -> None:
    reading = Gauge().read(1.5)
    assert reading.time == 1.5
    assert reading.cpu_percent >= 0
    assert 0 < reading.memory < reading.memory_total
    assert 0 < reading.memory_free < reading.memory_total
    assert reading.gpu_percent == -1


def test_a_gauge_with_a_gpu_reads_its_load_memory_power_and_heat() -> None:
    gauge = Gauge()
    gauge._handle = "card 0"
    gauge._nvml = SimpleNamespace(
        NVMLError=OSError,
        nvmlDeviceGetMemoryInfo=lambda card: SimpleNamespace(used=3, total=8),
        nvmlDeviceGetUtilizationRates=lambda card: SimpleNamespace(gpu=40),
        nvmlDeviceGetPowerUsage=lambda card: 120_500,
        nvmlDeviceGetTemperature=lambda card, sensor: 61,
    )
    reading = gauge.read(0.0)
    assert (reading.gpu_percent, reading.gpu_memory, reading.gpu_memory_total) == (40, 3, 8)
    assert (reading.gpu_watts, reading.gpu_celsius) == (120.5, 61)
    assert reading.memory_total > 8


def test_the_machine_and_the_versions_are_named() -> None:
    machine = describe(threads=3)
    assert machine.threads == 3
    assert machine.cpu
    assert machine.cores >= 1
    assert {"python", "torch", "transformers"} <= versions().keys()


def test_what_this_process_holds_is_told_and_a_gpu_that_is_not_there_holds_nothing() -> None:
    before = resident()
    with mmap.mmap(-1, 64 << 20) as kept:  # fresh from the system, whatever memory this process has at hand
        kept.write(b"x" * (64 << 20))
        assert 40 << 20 < resident() - before < 256 << 20
    assert gpu_memory_of_process(99) == 0
