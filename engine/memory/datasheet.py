"""Devices that are not here, as their makers publish them: what a step would take there at the least. No torch."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import resources
from engine.checkpoints.info import TORCH_BYTES, ModelInfo
from engine.config.specs import InvalidInput
from engine.memory.fit import DeviceMemory, Fit
from engine.memory.weight_bytes import expert_bytes, held_as

VARIANTS = frozenset(("Laptop", "PCIe", "PCIE", "NVL", "MIG", "D", "Ti", "SUPER", "40GB"))
TAKEN = 600 << 20  # bytes of a GPU that its driver and libraries take


@dataclass(frozen=True, slots=True)
class Datasheet:
    """`memory` in bytes, its `bandwidth` in bytes a second; `operations`: floating-point operations a second of dense
    matrix products, by dtype. No program reaches them: figures from here are bounds."""

    name: str
    memory: int
    bandwidth: float
    operations: Mapping[str, float]

    @property
    def room(self) -> DeviceMemory:
        """For a model, where nothing else is on it."""
        return DeviceMemory("cuda", self.memory - TAKEN, self.memory, runtime=TAKEN)

    def rate(self, dtype: str) -> float:
        """Operations a second in this dtype; 0 where it has no arithmetic of that kind."""
        return self.operations.get(dtype, 0.0)

    def decode_bound(self, info: ModelInfo, bill: Fit, rows: int, length: int) -> float:
        """Tokens a second at the most of so many requests that decode together, with `length` tokens in each one's
        cache: rows ÷ max(bytes ÷ bandwidth, operations ÷ rate), the bytes being the weights and each row's K and V, the
        operations 2 a weight and token and 4·heads·head_dim·length a layer (the roofline of Williams et al., 2009). Of
        a mixture a token multiplies with the experts it is sent to, and a step reads those that any of its tokens is
        sent to, as many as if all were as likely. 0 where the device cannot compute so."""
        rate = self.rate(bill.dtype)
        if not rate or not rows:
            return 0.0
        looked_up = 0 if info.tied else info.vocabulary * info.hidden
        unasked = expert_bytes(info, held_as(info, bill.quantization), bill.dtype) * (1 - info.asked) ** rows
        size = bill.weights - looked_up * TORCH_BYTES[bill.dtype] - unasked + rows * length * bill.kv_token
        attended = 4 * info.heads * info.head_dim * length * info.layers
        multiplied = info.parameters - looked_up - info.experts * (1 - info.asked)
        operations = rows * (2 * multiplied + attended)
        return rows / max(size / self.bandwidth, operations / rate)


@cache
def datasheets() -> tuple[Datasheet, ...]:
    """All that are known, as resources/datasheets.toml lists them."""
    table = tomllib.loads(resources.path("datasheets.toml").read_text(encoding="utf-8"))
    return tuple(
        Datasheet(
            each["name"],
            each["memory"] << 30,
            1e9 * each["bandwidth"],
            {dtype: 1e12 * each[dtype] for dtype in TORCH_BYTES if dtype in each},
        )
        for each in table["device"]
    )


def find_datasheet(name: str) -> Datasheet:
    """The one of this name, or the only one whose name has it within. Raises InvalidInput, which names them all."""
    known, asked = datasheets(), name.casefold().replace(" ", "")
    names = {sheet.name.casefold().replace(" ", ""): sheet for sheet in known}
    found = [names[asked]] if asked in names else [sheet for key, sheet in names.items() if asked and asked in key]
    if len(found) != 1:
        among = ", ".join(sheet.name for sheet in found or known)
        why = "is more than one" if found else "is no device whose figures are known here"
        raise InvalidInput(f"{name!r} {why}; choose among {among}")
    return found[0]


def published(card: str) -> Datasheet | None:
    """That of a GPU by the name that its driver has for it, as "NVIDIA H100 80GB HBM3"; None where it is not known, or
    is a variant of other figures."""
    words = card.replace("-", " ").split()
    found = [sheet for sheet in datasheets() if f" {sheet.name} " in f" {' '.join(words)} "]
    return found[0] if len(found) == 1 and VARIANTS.isdisjoint(words) else None
