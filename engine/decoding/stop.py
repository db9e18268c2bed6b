"""Stop strings across token borders."""

from collections.abc import Sequence


class StopStrings:
    """Passes text on until a stop string appears; holds back only what may still become one."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""

    def push(self, text: str) -> tuple[str, bool]:
        """The text that is certain now, and whether a stop string was met. What follows a stop is dropped."""
        text = self._held + text
        # Of several stops the one that is complete first wins; of those, the one that begins first.
        met = min(((at + len(s), at) for s in self._stops if (at := text.find(s)) >= 0), default=None)
        if met is not None:
            self._held = ""
            return text[: met[1]], True
        held = max(
            (n for s in self._stops for n in range(1, min(len(s), len(text) + 1)) if text.endswith(s[:n])), default=0
        )
        self._held = text[len(text) - held :]
        return text[: len(text) - held], False

    def flush(self) -> str:
        """What was held back, at an end that no stop string caused."""
        held, self._held = self._held, ""
        return held
