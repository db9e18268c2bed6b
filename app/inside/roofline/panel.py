"""The bottleneck: each step as a point under the roof of this machine, and in words which limit binds it."""

from collections.abc import Sequence

from PySide6.QtGui import QAction, QActionGroup
from PySide6.QtWidgets import QMenu

from app.inside.panel import COMING, InsightPanel
from app.inside.roofline.elsewhere import BESIDE, chosen_elsewhere
from app.inside.roofline.plot import EMPTY, RooflinePlot
from app.inside.roofline.points import Point, RooflinePoints
from app.inside.roofline.words import KIND_TITLES, bound_words, summary
from app.language import tr
from app.playback.scope import ROUNDING, Scope
from app.ui.tables.facts import Cell, Facts
from engine.memory import datasheets
from engine.trace import Record

ROWS = 500  # of the table: the steps before the cursor
COLUMNS = (
    *(tr("step"), tr("time s"), tr("kind"), tr("rows"), tr("tokens"), tr("bytes"), tr("operations")),
    *(tr("operations per byte"), tr("seconds"), tr("operations a second"), tr("roof"), tr("of the roof %")),
    *(tr("outside the forward %"), tr("binds"), tr("bytes a rank sends"), tr("exchange allows, operations a second")),
    *(tr("elsewhere"), tr("there at least s")),
)


class Roofline(InsightPanel):
    """The panel. What is counted and how is said in `engine.count_work` and in the picture's tooltip."""

    def __init__(self, scope: Scope) -> None:
        super().__init__(scope, "roofline", tr("Bottleneck"))
        self.points = RooflinePoints()
        self.plot = RooflinePlot()
        self.plot.sought.connect(scope.seek)
        self.plot.stepped.connect(scope.step_by)
        self.set_picture(self.plot)
        self.menu.insertMenu(self.table_action, self._devices())
        BESIDE.on_change(self.stale, self)

    def _devices(self) -> QMenu:
        """The devices whose roof can be seen beside this machine's."""
        menu = QMenu(tr("Beside another device"), self)
        group = QActionGroup(menu)
        for name in ("", *(sheet.name for sheet in datasheets())):
            action = QAction(name or tr("None"), group, checkable=True)
            action.setData(name)
            action.triggered.connect(lambda _, name=name: BESIDE.set(name))
            menu.addAction(action)

        def mark() -> None:
            for action in group.actions():
                action.setChecked(action.data() == BESIDE.value)

        menu.aboutToShow.connect(mark)
        return menu

    def take(self, records: Sequence[Record]) -> None:
        self.points.take(records)

    def adopt(self, known: RooflinePoints) -> bool:
        self.points = known
        return True

    def forget(self) -> None:
        self.points = RooflinePoints()
        self.plot.show_points(self.points, -1, 0.0)

    def draw(self) -> None:
        place = self._place()
        empty = COMING if self.scope.begun else EMPTY
        self.plot.show_points(self.points, place, self.scope.origin, empty, chosen_elsewhere(self.points))
        words = summary(self.points.point(place)) if place >= 0 else ""
        self.summary.say(f"~ {words}" if words and self.points.estimated else words)

    def _place(self) -> int:
        """The place of the point at the cursor; -1 before the first."""
        return self.points.place_at(self.scope.moment + ROUNDING)

    def facts(self) -> Facts:
        return Facts(COLUMNS, [self._fact(self.points.point(place)) for place in self._listed()])

    def _listed(self) -> range:
        """The places of the table's points."""
        last = self._place() + 1
        return range(max(0, last - ROWS), last)

    def _fact(self, p: Point) -> tuple[Cell, ...]:
        kind = KIND_TITLES[p.kind]
        counted = (p.step, p.ended - self.scope.origin, kind, p.rows, p.tokens, p.bytes, p.operations, p.intensity)
        roof = (p.limit, 100 * p.share) if p.limit else (None, None)
        exchange = (p.sent, p.ceiling) if p.ceiling else (None, None)
        there = chosen_elsewhere(self.points)
        elsewhere = (there.name, there.seconds(p)) if there is not None else (None, None)
        return (*counted, p.seconds, p.achieved, *roof, 100 * p.outside, bound_words(p), *exchange, *elsewhere)

    def row_chosen(self, row: int) -> None:
        self.scope.seek(float(self.points.ended[self._listed()[row]]))
