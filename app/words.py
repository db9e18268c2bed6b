"""What a model and a run are called in the window."""

from __future__ import annotations

from pathlib import Path

from engine import SCHEMES, Header, ModelCard

SHIPPED = {"demo": "demo stories", "demo-draft": "demo draft"}


def bytes_words(count: float) -> str:
    """1,536 bytes as "1.5 KB": three figures, steps of 1,024."""
    for unit in ("B", "KB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.3g} {unit}"
        count /= 1024
    return f"{count:.3g} TB"


def count_words(count: int) -> str:
    """Parameters: "5 M", "0.6 B"."""
    if count >= 1e9:
        return f"{count / 1e9:.1f} B"
    return f"{count / 1e6:.0f} M" if count >= 10e6 else f"{count / 1e6:.2g} M"


def left_words(seconds: float) -> str:
    """Seconds that are left, roughly: "20 s", "3 min"."""
    return f"{max(1, round(seconds))} s" if seconds < 90 else f"{round(seconds / 60)} min"


def model_words(source: str) -> str:
    """A model by the name people know it by: the demo, a folder's name, a hub id."""
    if source in SHIPPED:
        return SHIPPED[source]
    return Path(source).name if source.startswith(("/", "~", ".")) else source


def held_words(card: ModelCard) -> str:
    """How a model's weights are held: "float32", "nf4, bfloat16"."""
    return card.dtype if card.quantization == "none" else f"{SCHEMES[card.quantization].title}, {card.dtype}"


def run_words(header: Header) -> str:
    """ "demo stories 5 M · float32 · CPU, 2 cores · continuous, paged"."""
    card, machine = header.model, header.machine
    if card.device.startswith("cuda"):
        where = machine.gpu or "GPU"
    else:
        where = f"CPU, {machine.cores} core{'s' if machine.cores != 1 else ''}"
    cache = "paged" if header.config.mode in ("continuous", "chunked") else "contiguous"
    name = f"{model_words(card.source)} {count_words(card.parameters)}"
    return "   ·   ".join((name, held_words(card), where, f"{header.config.mode}, {cache}"))


def sentence(text: str) -> str:
    """A message with a capital at its beginning, unless it begins with the name of a value or a path."""
    first = text.split(" ", 1)[0]
    return text[:1].upper() + text[1:] if first.replace("'", "").isalpha() else text
