"""Where the device's bytes go, part by part, and how many requests the KV pool has room for. No Qt in here."""

from __future__ import annotations

from dataclasses import dataclass, replace

from engine import Header, Telemetry


@dataclass(frozen=True, slots=True)
class DeviceBill:
    """Bytes that add up to `total`; where `total` is 0 only weights and pool are known. `source` says whence they are.

    `runtime` is what this process holds besides; where `activations` is None, they are in it.
    """

    weights: int
    kv_pool: int
    activations: int | None = None
    runtime: int = 0
    other: int = 0
    free: int = 0
    total: int = 0
    source: str = ""

    @property
    def own(self) -> int:
        """What this process takes."""
        return self.weights + self.kv_pool + (self.activations or 0) + self.runtime


def device_bill(header: Header, measured: Telemetry | None) -> DeviceBill:
    """The bill at load, with what telemetry measured since: on a CPU runtime, others and what is free; on a GPU others
    and what is free.

    The pool's pages that were never written to are the pool's here, though the system still counts them as free; of
    activations, which are a peak, there is never more than fits.
    """
    bill, pool = header.bill, header.blocks * header.config.block_size * header.model.kv_token_bytes
    if bill is not None:
        known = DeviceBill(
            bill.weights, bill.kv_pool, bill.activations, bill.runtime, bill.other, bill.free, bill.total, "at load"
        )
    else:
        known = DeviceBill(header.model.weight_bytes, pool, source="weights and pool only: this trace has no bill")
    if measured is None:
        return known
    if header.model.device.startswith("cuda"):
        return _on_gpu(known, measured)
    return _on_cpu(known, measured)


def _on_cpu(known: DeviceBill, measured: Telemetry) -> DeviceBill:
    total, own, free = measured.memory_total, measured.memory, measured.memory_free
    if not (total and own and free):
        return known
    fixed = known.weights + known.kv_pool + (known.activations or 0)
    other = max(0, total - own - free)
    return _fitted(replace(known, runtime=max(0, own - fixed), other=other, total=total, source="measured"))


def _on_gpu(known: DeviceBill, measured: Telemetry) -> DeviceBill:
    if not (measured.gpu_memory and measured.gpu_memory_total):
        return known
    other = max(0, measured.gpu_memory - known.own)
    return _fitted(replace(known, other=other, total=measured.gpu_memory_total, source="measured"))


def _fitted(bill: DeviceBill) -> DeviceBill:
    """The rest is free; where there is less than none, the parts that are no certain bytes give way."""
    free = bill.total - bill.own - bill.other
    if free < 0 and bill.activations:
        give = min(bill.activations, -free)
        bill, free = replace(bill, activations=bill.activations - give), free + give
    if free < 0:
        give = min(bill.other, -free)
        bill, free = replace(bill, other=bill.other - give), free + give
    return replace(bill, free=max(0, free), total=bill.total if free >= 0 else bill.total - free)


def fits(blocks: int, block_size: int, tokens: float) -> int:
    """How many requests of so many tokens the pool holds at once, each in whole blocks of its own."""
    return blocks // max(1, -(-max(1, round(tokens)) // block_size)) if tokens > 0 else 0
