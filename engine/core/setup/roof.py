"""The roof of this machine for a model: how fast its device copies and multiplies, measured in well under a second."""

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from engine.core import machine
from engine.core.faults import Fault, fault_of
from engine.memory.allocator import release_references
from engine.models.loading import LoadedModel
from engine.models.packed_linear import pack_linears
from engine.models.weight_count import widest_matrix
from engine.trace.records import Roof

KIB, MIB = 1 << 10, 1 << 20
CPU_SETS = tuple(256 * KIB << i for i in range(10))  # up to 128 MiB: touching more for the first time takes too long
GPU_SETS = tuple(4 * MIB << i for i in range(9))  # up to 1 GiB; smaller copies measure the launch
CPU_TOKENS, GPU_TOKENS = 512, 4096  # tokens of a large prefill
CPU_WIDEST, GPU_WIDEST = 2048, 8192
LEAST = 0.00025  # seconds that one count takes at least: the shorter, the likelier no other process comes between
COUNTS = 4  # side by side, of which the fastest counts
ROUNDS = 3  # and the fastest of so many rounds, apart in time: other processes come and go
PATIENCE = 0.05  # seconds; a product of fewer tokens is measured where it takes longer
WEEK = 7 * 24 * 3600.0
FORMAT = 2


def cache_file() -> Path:
    """Where roofs are kept: below $BATCHSCOPE_DATA, else in the place for application data."""
    chosen = os.environ.get("BATCHSCOPE_DATA")
    if chosen:
        return Path(chosen) / "cache" / "roofs.json"
    if sys.platform == "darwin":
        home = Path.home() / "Library" / "Application Support"
    elif sys.platform == "win32":
        home = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    else:
        home = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    return home / "batchscope" / "cache" / "roofs.json"


@dataclass(frozen=True, slots=True)
class Copies:
    """What of a roof no model changes; as `Roof` has it."""

    working_sets: tuple[int, ...]
    bandwidths: tuple[float, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class Products:
    """What of a roof is a model's."""

    operations: float
    seconds: float


def roof_of(model: LoadedModel, threads: int) -> Roof | None:
    """The roof for a model on its device, of what was measured within the last week from the cache; None where the
    memory has no room to measure it. Of a split model that of all ranks, who measure at once."""
    cpu, ranks = model.device.type == "cpu", model.devices
    inputs, outputs = widest_matrix(model.module)
    widest = CPU_WIDEST if cpu else GPU_WIDEST
    inputs, outputs = min(inputs or model.card.hidden, widest), min(outputs or 4 * model.card.hidden, widest)
    name = machine.processor_name() if cpu else torch.cuda.get_device_name(model.device)
    dtype = str(model.dtype).removeprefix("torch.")
    key = f"{FORMAT} · {name} · {threads} threads" + (f" · {ranks} ranks" if ranks > 1 else "")
    of_products = f"{key} · {dtype} · torch {torch.__version__} · {inputs}x{outputs}"
    kept = _read()
    copies, products = _kept_copies(kept.get(key)), _kept_products(kept.get(of_products))
    if copies is not None and not set(copies.working_sets) >= set(_working_sets(model.device)):
        copies = None  # there was less room then
    try:
        if copies is None:
            if model.ranks is not None:
                model.ranks.measure("copies")
            copies = measure_copies(model.device)
            _keep(key, copies)
        if products is None:
            if model.ranks is not None:
                model.ranks.measure("products", inputs=inputs, outputs=outputs)
            products = measure_products(model.device, model.dtype, inputs, outputs)
            _keep(of_products, products)
    except Exception as error:
        if fault_of(error, model.device) is not Fault.MEMORY:
            raise
        release_references(error)
        return None
    return _together(copies, products, ranks)


def measure_roof(device: torch.device, dtype: torch.dtype, inputs: int, outputs: int) -> Roof:
    """Measures it now, with the threads that torch has now."""
    return _together(measure_copies(device), measure_products(device, dtype, inputs, outputs), 1)


def _together(copies: Copies, products: Products, ranks: int) -> Roof:
    """What so many reach together, each of whom has this roof while the others compute too."""
    sets, bandwidths = tuple(ranks * n for n in copies.working_sets), tuple(ranks * n for n in copies.bandwidths)
    return Roof(sets, bandwidths, ranks * products.operations, copies.seconds + products.seconds)


def measure_copies(device: torch.device) -> Copies:
    """A copy of a working set of n bytes reads its one half and writes its other: n bytes."""
    begun = time.perf_counter()
    sets = _working_sets(device)
    memory = torch.zeros(sets[-1], dtype=torch.uint8, device=device)
    fastest = [float("inf")] * len(sets)
    with torch.inference_mode():
        for _ in range(ROUNDS):
            for i, size in enumerate(sets):
                copy = partial(memory[size // 2 : size].copy_, memory[: size // 2])
                fastest[i] = min(fastest[i], _seconds(copy, device))
    del memory, copy
    if device.type == "cuda":
        torch.cuda.empty_cache()
    bandwidths = tuple(size / seconds for size, seconds in zip(sets, fastest))
    return Copies(sets, bandwidths, time.perf_counter() - begun)


def measure_products(device: torch.device, dtype: torch.dtype, inputs: int, outputs: int) -> Products:
    """Of a large prefill's tokens with a layer of `inputs` x `outputs` weights, as this engine multiplies them: 2 m n k
    operations, one multiplication and one addition each."""
    begun, operations = time.perf_counter(), 0.0
    with torch.inference_mode():
        multiply, counted = _product(device, dtype, inputs, outputs)
        for _ in range(ROUNDS):
            operations = max(operations, counted / _seconds(multiply, device))
    del multiply
    if device.type == "cuda":
        torch.cuda.empty_cache()
    return Products(operations, time.perf_counter() - begun)


def _working_sets(device: torch.device) -> tuple[int, ...]:
    if device.type == "cuda":
        free, sets = torch.cuda.mem_get_info(device)[0] // 4, GPU_SETS
    else:
        free, sets = machine.memory()[1] // 8, CPU_SETS
    return tuple(size for size in sets if size <= free) or sets[:1]


def _product(device: torch.device, dtype: torch.dtype, inputs: int, outputs: int) -> tuple[Callable[[], Any], int]:
    """The product, and how many operations it takes. Of as many tokens as are quick: some processors are very slow in
    some dtypes."""
    most = GPU_TOKENS if device.type == "cuda" else CPU_TOKENS
    layer = nn.Sequential(nn.Linear(inputs, outputs, bias=False, device=device, dtype=dtype)).requires_grad_(False)
    pack_linears(layer)
    x = torch.randn(most, inputs, device=device, dtype=dtype)
    tokens = most if device.type == "cuda" else 32
    while tokens < most:
        layer(x[:tokens])
        begun = time.perf_counter()
        layer(x[:tokens])
        if 4 * (time.perf_counter() - begun) > PATIENCE:
            break
        tokens = min(4 * tokens, most)
    x = x[:tokens]
    return lambda: layer(x), 2 * tokens * inputs * outputs


def _seconds(do: Callable[[], Any], device: torch.device) -> float:
    """Seconds of one call: in the fastest of some counts, each of as many calls as take long enough to be told."""
    do()
    if device.type == "cuda":
        return _gpu_seconds(do)
    calls, counted, fastest = 1, 0, float("inf")
    while counted < COUNTS:
        begun = time.perf_counter()
        for _ in range(calls):
            do()
        seconds = time.perf_counter() - begun
        if seconds < LEAST:
            calls = max(2 * calls, int(calls * 1.2 * LEAST / max(seconds, 1e-7)))
        else:
            counted, fastest = counted + 1, min(fastest, seconds / calls)
    return fastest


def _gpu_seconds(do: Callable[[], Any], calls: int = 10) -> float:
    """As the device's own events tell it, so that the host's time does not count."""
    begun, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begun.record()
    for _ in range(calls):
        do()
    ended.record()
    ended.synchronize()
    return max(begun.elapsed_time(ended) / 1000 / calls, 1e-9)


def _read() -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError):
        kept = json.loads(cache_file().read_text(encoding="utf-8"))
        if isinstance(kept, dict):
            return kept
    return {}


def _fresh(entry: Any) -> bool:
    return isinstance(entry, dict) and 0 <= time.time() - entry["measured"] < WEEK


def _kept_copies(entry: Any) -> Copies | None:
    with contextlib.suppress(KeyError, TypeError, ValueError):
        if _fresh(entry):
            sets, bandwidths = tuple(map(int, entry["working_sets"])), tuple(map(float, entry["bandwidths"]))
            if sets and len(sets) == len(bandwidths):
                return Copies(sets, bandwidths, float(entry["seconds"]))
    return None


def _kept_products(entry: Any) -> Products | None:
    with contextlib.suppress(KeyError, TypeError, ValueError):
        if _fresh(entry):
            return Products(float(entry["operations"]), float(entry["seconds"]))
    return None


def _keep(key: str, found: Copies | Products) -> None:
    """Where it cannot be written, it is measured again the next time."""
    path = cache_file()
    entry = asdict(found) | {"measured": time.time()}
    with contextlib.suppress(OSError):
        for folder in (path.parent.parent, path.parent):  # prompts are kept there too, for their owner alone
            folder.mkdir(0o700, parents=True, exist_ok=True)
        new = path.with_name(f"{path.name}.{os.getpid()}")
        new.write_text(json.dumps({**_read(), key: entry}, indent=1), encoding="utf-8")
        new.replace(path)
