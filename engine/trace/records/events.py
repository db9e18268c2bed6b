"""What happens beside requests and steps: the machine is measured, a person is told something or moves the budget."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Telemetry:
    """What the machine does, about twice a second. Percents are 0-100 a core (CPU) or a card (GPU); memory in bytes.
    `memory` is what this process holds, `memory_free` what any process could still take."""

    time: float
    cpu_percent: float
    memory: int
    memory_total: int
    gpu_percent: float = -1.0
    gpu_memory: int = 0
    gpu_memory_total: int = 0
    gpu_watts: float = 0.0
    gpu_celsius: float = 0.0
    memory_free: int = 0


@dataclass(frozen=True, slots=True)
class Notice:
    """Something a person should know. `level` is "info", "warning" or "error"."""

    time: float
    level: str
    text: str


@dataclass(frozen=True, slots=True)
class Steered:
    """The budget of the steps planned from here on was set by a person; `LiveBudget` tells what the values mean."""

    time: float
    token_budget: int
    max_running: int
    prefill_share: float
    target_itl: float = 0.0
