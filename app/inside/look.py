"""How a panel is looked at, so that it can be drawn elsewhere as a person sees it. No Qt in here."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Look:
    """`at` in seconds from the first request: infinite at the end, None where the panel shows most. The `request` that
    is selected, -1 for none. A timeline's `axis` ("": its usual one) and what of it is in `sight` (None: all)."""

    at: float | None = None
    request: int = -1
    axis: str = ""
    sight: tuple[float, float] | None = None
