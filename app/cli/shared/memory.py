"""The itemised bill of memory on the command line: where the device's bytes go, and how many requests fit."""

from dataclasses import asdict
from typing import Any

from app.cli.shared.columns import columns
from app.session.memory.device import captured_words, device_bill, lengths
from app.words import bytes_words, kv_words
from engine.memory import kv_capacity
from engine.trace import Header


def as_text(header: Header) -> str:
    """An item a line, aligned; then what the pool has room for, and which decode steps were captured."""
    bill, card = device_bill(header, None), header.model
    where = header.machine.gpu or "GPU" if card.device.startswith("cuda") else "this machine"
    lines = [f"memory of {where}, at load" if bill.total else "memory"]
    rows = [(item.name, bytes_words(item.count), item.count) for item in bill.items]
    if bill.total:
        rows.append(("in all", bytes_words(bill.total), bill.total))
    shares = (f"{100 * count / bill.total:5.1f} %" if bill.total else "" for *_, count in rows)
    table = [(name, figure, share) for (name, figure, _), share in zip(rows, shares)]
    lines += [f"  {line}" for line in columns(table, right=(1,))]
    if room := capacity(header):
        (length, count), *others = room.items()
        parts = [f"{count:,} request{'' if count == 1 else 's'} × {length:,} tokens"]
        parts += [f"{count:,} × {length:,}" for length, count in others]
        context = " (context)" if card.context else ""
        lines.append(
            f"  fits {' · '.join(parts)}{context}; {kv_words(card.kv_dtype, card.kv_token_bytes, card.state_bytes)}"
        )
    lines += [f"  {words[:1].lower()}{words[1:]}" for words in captured_words(header).splitlines()]
    lines += [f"    {why}" for why in (header.machine.threads_why, header.machine.kernels) if why]
    return "\n".join(lines)


def as_json(header: Header) -> dict[str, Any]:
    """The same in bytes; `fits` by tokens of a request."""
    return {
        "device": header.model.device,
        "bill": asdict(header.bill) if header.bill is not None else None,
        "blocks": header.blocks,
        "block_size": header.config.block_size,
        "kv_token_bytes": header.model.kv_token_bytes,
        "kv_dtype": header.model.kv_dtype or header.model.dtype,
        "fits": {str(length): count for length, count in capacity(header).items()},
        "graphs": list(header.graphs),
        "graphs_off": header.graphs_off,
        "mixed_graphs": list(header.mixed_graphs),
        "mixed_off": header.mixed_off,
    }


def capacity(header: Header) -> dict[int, int]:
    """How many requests the pool has room for, by their length in tokens; empty in the mode that keeps no cache."""
    if header.config.mode == "recompute":
        return {}
    return {n: kv_capacity(header.blocks, header.config.block_size, n) for n in lengths(header.model.context)}
