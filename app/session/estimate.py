"""What a model would take of a memory, told from its files before it is loaded. No torch, no Qt; may block on disk."""

import contextlib
from dataclasses import dataclass

from app.words import bytes_words, count_words, sentence
from engine import EngineConfig, InvalidInput, ModelSpec
from engine.checkpoints import inspect_model
from engine.core import nvidia_driver
from engine.memory import DeviceMemory, Fit, fits

RUNTIME = 600 << 20  # bytes that an engine's process takes besides weights and pool


@dataclass(frozen=True, slots=True)
class Estimate:
    """Bytes of the weights beside the memory's free and total bytes; `facts` in words, a line each; `fit` the whole
    bill, None without a model; `bills` those of all quantizations; `context` that of the model in tokens, 0 where it
    does not say."""

    weights: int
    free: int
    total: int
    facts: tuple[str, ...]
    fit: Fit | None = None
    bills: tuple[Fit, ...] = ()
    context: int = 0

    @property
    def fits(self) -> bool:
        return self.fit is None or self.fit.fits


def on_gpu(device: str) -> bool:
    """Whether a model on this device lies in a GPU's memory."""
    return device.startswith("cuda") or (device == "auto" and nvidia_driver())


def free_memory(gpu: bool) -> tuple[int, int]:
    """Free and total bytes, of the first GPU or of the machine."""
    if gpu:
        with contextlib.suppress(Exception):  # no driver, card or library: the machine's memory then
            import pynvml

            pynvml.nvmlInit()
            try:
                held = pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(0))
                return int(held.free), int(held.total)
            finally:
                pynvml.nvmlShutdown()
    import psutil

    memory = psutil.virtual_memory()
    return memory.available, memory.total


def room(device: str) -> DeviceMemory:
    """The memory that a model on this device would lie in, as it is now."""
    gpu = on_gpu(device)
    return DeviceMemory("cuda" if gpu else "cpu", *free_memory(gpu))


def empty(device: str) -> Estimate:
    """The memory without a model."""
    return Estimate(0, *free_memory(on_gpu(device)), ())


def estimate(spec: ModelSpec, config: EngineConfig | None = None) -> Estimate:
    """Reads the headers of a local model. Raises InvalidInput when it is none."""
    info, memory, config = inspect_model(spec), room(spec.device), config or EngineConfig()
    slots, budget = config.slots, config.token_budget
    bills = tuple(fits(info, memory, dtype=spec.dtype, max_running=slots, token_budget=budget))
    fit = next(bill for bill in bills if bill.quantization == spec.quantization)
    facts = (
        f"KV {bytes_words(fit.kv_token)} a token{f' · context {info.context:,}' if info.context else ''}",
        f"{count_words(info.parameters)} parameters in {fit.dtype}",
        *(sentence(words) for words in (fit.available, fit.note) if words),
    )
    return Estimate(fit.weights, memory.free, memory.total, facts, fit, bills, info.context)


def needed_and_free(spec: ModelSpec) -> tuple[int, int]:
    """Bytes that `spec` takes, and that are free with everything that is loaded now. A model of which nothing is known
    before it is fetched takes its chance beside the one there is: 0."""
    try:
        found = estimate(spec)
    except (InvalidInput, OSError):
        return 0, empty(spec.device).free
    return found.weights + RUNTIME, found.free
