"""Beams: one request's beam search as a tree that grows, with what it pruned and what it finished."""

from collections.abc import Sequence

from app.inside.beams.history import BeamHistory, Search
from app.inside.beams.tree import BeamTree
from app.inside.panel import InsightPanel
from app.language import tr, trn
from app.playback.scope import ROUNDING, Scope
from app.ui.tables.facts import Facts
from engine.trace import Fate, Record

ROWS = 500  # of the table: the candidates up to the cursor
COLUMNS = (
    *(tr("step"), tr("time s"), tr("request"), tr("token"), tr("text"), tr("after beam"), tr("as beam")),
    *(tr("log-probability"), tr("score"), tr("fate")),
)
FATES = {Fate.PRUNED: tr("pruned"), Fate.LIVE: tr("lives on"), Fate.FINISHED: tr("finished")}


class BeamsPanel(InsightPanel):
    """The panel. It shows the selected request where that is a beam search, else the one that was last decided for."""

    def __init__(self, scope: Scope) -> None:
        super().__init__(scope, "beams", tr("Beams"))
        self.history = BeamHistory()
        self.tree = BeamTree()
        self.tree.sought.connect(scope.seek)
        self.tree.stepped.connect(scope.step_by)
        self.set_picture(self.tree)

    def take(self, records: Sequence[Record]) -> None:
        self.history.take(records)

    def adopt(self, known: BeamHistory) -> bool:
        self.history = known
        return True

    def forget(self) -> None:
        self.history = BeamHistory()
        self.tree.show_search(None, -1, 0)
        self.summary.say("")

    def draw(self) -> None:
        search = self.history.shown(self.scope.request, self.scope.moment + ROUNDING)
        place = search.place_at(self.scope.moment + ROUNDING) if search is not None else -1
        certain = search.certain(place) if search is not None and place >= 0 else 0
        self.tree.show_search(search, place, certain)
        self.summary.say(_summary(search, place, certain) if search is not None else "")

    def facts(self) -> Facts:
        return Facts(COLUMNS, [row for _, row in self._listed()])

    def _listed(self) -> list[tuple[float, tuple[str | int | float | None, ...]]]:
        """When each row's step ended, and the row."""
        search = self.history.shown(self.scope.request, self.scope.moment + ROUNDING)
        if search is None:
            return []
        rows: list[tuple[float, tuple[str | int | float | None, ...]]] = []
        for column in search.columns[: search.place_at(self.scope.moment + ROUNDING) + 1]:
            for each in column.candidates:
                parent = each.parent.branch + 1 if each.parent is not None else None
                goes_on = each.branch + 1 if each.branch >= 0 else None
                known = column.step, column.ended - self.scope.origin, search.request, each.length, each.shown
                score = search.score(each)
                rows.append((column.ended, (*known, parent, goes_on, each.total, score, FATES[each.fate])))
        return rows[-ROWS:]

    def row_chosen(self, row: int) -> None:
        self.scope.seek(self._listed()[row][0])


def _summary(search: Search, place: int, certain: int) -> str:
    said = [tr("request {request}", request=search.request)]
    said.append(trn("{count:,} beam", "{count:,} beams", search.params.beam_width))
    if place >= 0:
        tokens = search.columns[place].candidates[0].length
        said.append(trn("{n:,} of {count:,} token certain", "{n:,} of {count:,} tokens certain", tokens, n=certain))
        finished = search.finished(place)
        said += [tr("{count} finished", count=len(finished))] if finished else []
    return " · ".join(said)
