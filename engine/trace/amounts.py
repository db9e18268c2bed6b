"""Amounts in words for people."""


def bytes_text(count: float) -> str:
    """1,536 bytes as "1.5 KB": three digits, steps of 1,024."""
    for unit in ("B", "KB", "MB", "GB"):
        if count < 1000:
            if unit == "B" or count >= 100:
                return f"{count:.0f} {unit}"
            return f"{count:.{3 if count >= 1 else 2}g} {unit}"
        count /= 1024
    return f"{count:.3g} TB"


def parameters_text(count: int) -> str:
    """ "5 M", "0.6 B"."""
    if count >= 1e9:
        return f"{count / 1e9:.1f} B"
    return f"{count / 1e6:.0f} M" if count >= 10e6 else f"{count / 1e6:.2g} M"
