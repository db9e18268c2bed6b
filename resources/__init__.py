"""Files that travel with Batchscope: the demo model, workloads, scenes, icons. The same from a checkout and a wheel."""

from pathlib import Path

_ROOT = Path(__file__).resolve().parent


def path(name: str) -> Path:
    """Where the resource `name` lies, e.g. `path("models/stories-5m")`; it may be absent, and the caller says so."""
    return _ROOT / name
