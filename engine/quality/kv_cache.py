"""Ways to keep K and V that cost quality, each with a name. No torch."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from engine.config.checks import InvalidInput, shown
from engine.config.specs import KV_DTYPES, EngineConfig

WINDOW = re.compile(r"window-([1-9]\d{0,6})(?:-(\d{1,6}))?")
KINDS = f"{', '.join(KV_DTYPES[1:])} or window-TOKENS, as window-128, or window-TOKENS-SINKS, as window-128-0"


@dataclass(frozen=True, slots=True)
class KvCache:
    """The fields of an `EngineConfig` that say so."""

    kv_dtype: str = "auto"
    kv_window: int | None = None
    kv_sinks: int = EngineConfig().kv_sinks

    @classmethod
    def named(cls, name: str) -> KvCache:
        """Of a name, "" for the model's own. Raises InvalidInput for one that there is not."""
        if name in KV_DTYPES[1:]:
            return cls(kv_dtype=name)
        found = WINDOW.fullmatch(name)
        if name and found is None:
            raise InvalidInput(f"cache={shown(name)}: must be {KINDS}")
        if found is None:
            return cls()
        return cls(kv_window=int(found[1]), kv_sinks=int(found[2]) if found[2] is not None else cls().kv_sinks)

    @property
    def settings(self) -> dict[str, Any]:
        """For an EngineConfig."""
        return {"kv_dtype": self.kv_dtype, "kv_window": self.kv_window, "kv_sinks": self.kv_sinks}
