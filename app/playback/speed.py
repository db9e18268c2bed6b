"""How fast a replay goes: as it was, faster or slower, or so slow that it can be watched."""

from app.language import tr
from app.ui.controls import DropDown

SPEEDS = (0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0)
WATCHED = 10.0  # seconds that the replay of what was over sooner takes
BRIEFEST = 1e-3  # seconds of a run that nothing is slower than


def watchable(seconds: float) -> float:
    """The speed at which what took so many seconds can be watched: never faster than it was; 1 of nothing."""
    return min(1.0, max(seconds, BRIEFEST) / WATCHED) if seconds > 0 else 1.0


class SpeedChoice(DropDown):
    """One of `SPEEDS`, or None: what is played can be watched."""

    def __init__(self, name: str, said: str) -> None:
        super().__init__(name, [(tr("auto"), None), *((f"{speed:g} ×", speed) for speed in SPEEDS)], said)
        self.setMinimumContentsLength(9)  # what None comes to is whole
        slow = tr("auto: what was over sooner is played in {seconds:.0f} s", seconds=WATCHED)
        self.setToolTip("\n".join((tr("How fast a replay goes"), slow)))

    def tell(self, speed: float) -> None:
        """What None comes to where the replay is now."""
        words = tr("auto") if speed == 1 else " · ".join((tr("auto"), f"{speed:.2g} ×"))
        if words != self.itemText(0):
            self.setItemText(0, words)

    def choose(self, length: float, seconds: float) -> None:
        """The speed on offer with which `length` seconds take nearest to `seconds`."""
        self.set_value(min(SPEEDS, key=lambda speed: abs(length / speed - seconds)))
