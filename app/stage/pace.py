"""Slow motion: whatever is played takes as long as there is to say about it."""

from collections.abc import Callable

from app.language import tr
from app.stage.stage import Stage
from app.words import duration

SLOW = (20.0, 60.0)  # seconds that a run takes at the first stroke and the second; the third is the pace it had


def _nothing() -> None:
    """There is no speed to put back."""


class Pace:
    """Of the run or race that is on show."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._stroke = 0
        self._put_back: Callable[[], None] = _nothing

    def slower(self) -> str:
        """Plays it from its start, more slowly at each stroke; in words, "" where there is nothing to play."""
        compare, scope = self._stage.compared, self._stage.bridge.scope
        length = scope.end - scope.origin if compare is None else compare.race.longest
        if length <= 0 or (self._stage.bridge.busy if compare is None else not compare.race.can_replay):
            return ""
        stroke = (self._stroke + 1) % (len(SLOW) + 1)
        self.restore()
        self._stroke = stroke
        speed = length / SLOW[stroke - 1] if stroke else 1.0
        if compare is not None:
            race, choice = compare.race, compare.replay.speed
            self._put_back = lambda: setattr(race, "speed", choice.currentData())
            race.pause()
            race.speed = speed
            race.seek(0.0)
            race.play()
        else:
            choice = self._stage.play.cursor_bar.speed
            self._put_back = lambda: setattr(scope, "speed", choice.currentData())
            scope.speed = speed
            scope.seek(scope.origin)
            scope.toggle()
        if not stroke:
            return tr("as fast as it was")
        return tr("slow motion: {length} in {seconds:.0f} s", length=duration(length), seconds=SLOW[stroke - 1])

    def toggle(self) -> None:
        """Plays on, or pauses."""
        if self._stage.compared is not None:
            self._stage.compared.race.toggle()
        else:
            self._stage.bridge.scope.toggle()

    def restore(self) -> None:
        """The speed that is chosen on the page."""
        self._stroke = 0
        self._put_back()
        self._put_back = _nothing
