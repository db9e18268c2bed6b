"""Quality against memory and against speed: a point a quantization, with the original for reference."""

import math
from collections.abc import Sequence
from itertools import product

from PySide6.QtCore import QEvent, QLineF, QPointF, QRectF, Qt, Signal
from PySide6.QtGui import QKeyEvent, QMouseEvent, QPainter, QPen
from PySide6.QtWidgets import QWidget

from app.language import tr
from app.plot import axes
from app.plot.marks import draw_scheme, scheme_color
from app.plot.plot import Plot
from app.quality.axes import Axis, across_axis, divergence_axis, perplexity_axis
from app.quality.words import COLUMN, facts_words, rows_of, value_of, way_words
from app.ui.layout.boxes import row
from app.ui.layout.zoomed import zoomed
from app.ui.look import theme
from engine.quality import QualityReport

MARK, RING, NEAR = 9, 9, 14  # pixels of the design: a mark, its ring, and how near the pointer must come
UP = {
    "divergence": tr("KL divergence from the original, nats, logarithmic"),
    "perplexity": tr("perplexity of the text"),
}
ACROSS = {"weight_bytes": tr("bytes of the weights"), "rate": tr("tokens a second, one request at a time")}
GAPS = 12, 18, 28, 42, 60, 84  # pixels of the design between a point and its words
# where words may stand beside their point: gaps to the right and down, widths back and heights up
SIDES = (1, 0, 0, 0.5), (-1, 0, 1, 0.5), (0, -1, 0.5, 1), (0, 1, 0.5, 0)
CORNERS = (0.7, -0.7, 0, 0.5), (0.7, 0.7, 0, 0.5), (-0.7, -0.7, 1, 0.5), (-0.7, 0.7, 1, 0.5)
AXES = {"divergence": tr("KL divergence, nats, log"), "perplexity": tr("perplexity")}
AXES |= {"weight_bytes": tr("weights"), "rate": tr("tok/s, alone")}


class QualityPlot(Plot):
    """`across` is the column that is drawn across. Arrows go from point to point, the pointer chooses one."""

    chosen = Signal(int)  # place in `rows_of` the report

    def __init__(self, name: str, title: str, across: str) -> None:
        super().__init__(name)
        self.title = title
        self.setAccessibleName(title)
        self.across, self.up = across, "divergence"
        self.report: QualityReport | None = None
        self.selected = self.hovered = -1
        self.places: dict[int, QPointF] = {}
        self.boxes: dict[int, QRectF] = {}  # of the words
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setMouseTracking(True)

    def show_report(self, report: QualityReport | None, up: str) -> None:
        """`up` is "divergence" or "perplexity"."""
        self.report, self.up = report, up
        self.selected = self.hovered = -1
        self.places, self.boxes = {}, {}
        self.setAccessibleDescription(self.tooltip())
        self.update()

    def select(self, place: int) -> None:
        if place != self.selected:
            self.selected = place
            self.update()

    def points(self) -> dict[int, tuple[float, float]]:
        """Values of the rows that have both, by their places."""
        if self.report is None:
            return {}
        columns = COLUMN[self.across], COLUMN[self.up]
        found = {i: [value_of(column, each) for column in columns] for i, each in enumerate(rows_of(self.report))}
        return {i: (x, y) for i, (x, y) in found.items() if x is not None and y is not None}

    def tooltip(self) -> str:
        lines = [tr("{up}, against {across}", up=UP[self.up], across=ACROSS[self.across])]
        if self.report is not None:
            lines += [facts_words(each, self.report) for each in rows_of(self.report)]
        return "\n".join(lines)

    # -- the drawing ----------------------------------------------------------------------------------------------

    def draw(self, painter: QPainter, area: QRectF) -> None:
        t, px, tiny = theme.current(), theme.px, self.tiny
        points = self.points()
        caption = math.ceil(tiny.height) + px(4)
        words = tiny.cut(f"↑ {AXES[self.up]}   → {AXES[self.across]}", area.width())
        tiny.say(painter, area.left(), area.top() + tiny.ascent, words, t.secondary)
        if not points:
            painter.drawText(area, Qt.AlignmentFlag.AlignCenter, tr("No figures to draw"))
            return
        side = divergence_axis if self.up == "divergence" else perplexity_axis
        up = side([y for _, y in points.values()])
        across = across_axis(self.across, [x for x, _ in points.values()])
        left = area.left() + px(8) + max(tiny.width(word) for _, word in up.ticks)
        plot = QRectF(left, area.top() + caption, area.right() - left, max(1.0, area.height() - caption))
        inner = plot.adjusted(px(4), px(12), -px(4), -px(14))
        self._scale(painter, plot, inner, up)
        ticks = [((inner.left() + s * inner.width() - plot.left()) / plot.width(), word) for s, word in across.ticks]
        self.foot(painter, plot.left(), plot.right(), plot.bottom(), ticks)
        self.places = {
            i: QPointF(inner.left() + across.share(x) * inner.width(), inner.bottom() - up.share(y) * inner.height())
            for i, (x, y) in points.items()
        }
        self._reference(painter, plot)
        self._rings(painter)
        for i, place in self.places.items():
            draw_scheme(painter, self._name(i), place.x(), place.y(), px(MARK))
        self._say_names(painter, plot)
        if self.hasFocus():
            painter.setPen(QPen(t.accent, 1))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRoundedRect(plot.adjusted(0.5, 0.5, -0.5, -0.5), px(4), px(4))

    def _name(self, place: int) -> str:
        assert self.report is not None
        return rows_of(self.report)[place].quantization if place else "none"

    def _scale(self, painter: QPainter, plot: QRectF, inner: QRectF, up: Axis) -> None:
        """Words at the left; zero of a logarithmic axis has a rule of its own above it."""
        ticks = ((inner.bottom() - share * inner.height(), word) for share, word in up.ticks)
        axes.side(painter, self.tiny, ticks, plot.left() - theme.px(6))
        if up.log:
            painter.setPen(QPen(theme.current().hairline, 1, Qt.PenStyle.DashLine))
            y = round(inner.bottom() - 0.5 * up.floor * inner.height()) + 0.5
            painter.drawLine(QLineF(plot.left(), y, plot.right(), y))

    def _reference(self, painter: QPainter, plot: QRectF) -> None:
        """The original: hairlines across and up through its point."""
        place = self.places.get(0)
        painter.setPen(QPen(theme.current().edge, 1, Qt.PenStyle.DotLine))
        if place is not None:
            painter.drawLine(QLineF(place.x(), plot.top(), place.x(), plot.bottom()))
        if place is not None and self.up == "perplexity":
            painter.drawLine(QLineF(plot.left(), place.y(), plot.right(), place.y()))

    def _rings(self, painter: QPainter) -> None:
        t, px = theme.current(), theme.px
        painter.setBrush(Qt.BrushStyle.NoBrush)
        for place, color in ((self.hovered, t.edge), (self.selected, t.accent)):
            if place in self.places:
                painter.setPen(QPen(color, max(1.5, 1.5 * theme.zoom())))
                painter.drawEllipse(self.places[place], px(RING), px(RING))

    def _say_names(self, painter: QPainter, plot: QRectF) -> None:
        """Each point's name beside it where nothing else is, else further away with a line that leads there."""
        assert self.report is not None
        t, px, small = theme.current(), theme.px, self.small
        rows = rows_of(self.report)
        half = px(RING) + 1
        taken = [QRectF(p.x() - half, p.y() - half, 2 * half, 2 * half) for p in self.places.values()]
        if 0 in self.places:  # the line through the original
            taken.append(QRectF(self.places[0].x() - 1, plot.top(), 2, plot.height()))
        self.boxes = {}

        def urgent(i: int) -> tuple[int, float]:
            """Points in a crowd choose first: they have the fewest places to go."""
            near = [apart for apart in self._distances(self.places[i]).values() if apart < px(80)]
            return -len(near), self.places[i].y()

        for i in sorted(self.places, key=urgent):
            place = self.places[i]
            words = tr("original") if i == 0 else way_words(rows[i])
            box = self.boxes[i] = self._room(place, small.width(words), math.ceil(small.height), plot, taken)
            taken.append(box)
            x, y = min(max(place.x(), box.left()), box.right()), min(max(place.y(), box.top()), box.bottom())
            if math.hypot(x - place.x(), y - place.y()) > px(14):
                painter.setPen(QPen(t.edge, 1))
                painter.drawLine(place, QPointF(x, y))
            color = t.secondary if i == 0 else scheme_color(self._name(i)) if i != self.selected else t.text
            small.say(painter, box.left(), box.top() + small.ascent, words, color)

    def _room(self, place: QPointF, width: float, height: float, plot: QRectF, taken: Sequence[QRectF]) -> QRectF:
        """A box for words near a place, on nothing that is taken; the last one tried where all is."""
        x, y, px = place.x(), place.y(), theme.px
        bounds = plot.adjusted(px(2), 0, 0, -px(2))
        box = QRectF()
        for gap, (right, down, back, up) in product(map(px, GAPS), SIDES + CORNERS):
            box = QRectF(x + right * gap - back * width, y + down * gap - up * height, width, height)
            if bounds.contains(box) and not any(box.intersects(other) for other in taken):
                return box
        return QRectF(min(max(x + px(9), bounds.left()), bounds.right() - width), box.top(), width, height)

    # -- the pointer and the keys ---------------------------------------------------------------------------------

    def nearest(self, at: QPointF) -> int:
        """The place of the point, or of its words, that is there; -1 where none is."""
        distances = self._distances(at) | {i: 0.0 for i, box in self.boxes.items() if box.contains(at)}
        best = min(distances, key=lambda i: distances[i], default=-1)
        return best if best >= 0 and distances[best] <= theme.px(NEAR) else -1

    def _distances(self, at: QPointF) -> dict[int, float]:
        return {i: math.hypot(p.x() - at.x(), p.y() - at.y()) for i, p in self.places.items()}

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        hovered = self.nearest(event.position())
        self.setCursor(Qt.CursorShape.PointingHandCursor if hovered >= 0 else Qt.CursorShape.ArrowCursor)
        if hovered != self.hovered:
            self.hovered = hovered
            self.update()

    def leaveEvent(self, event: QEvent) -> None:
        self.hovered = -1
        self.update()

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if event.button() is Qt.MouseButton.LeftButton:
            self.chosen.emit(self.nearest(event.position()))

    def keyPressEvent(self, event: QKeyEvent) -> None:
        points = self.points()
        places = sorted(points, key=lambda i: points[i])
        step = {Qt.Key.Key_Left: -1, Qt.Key.Key_Right: 1}.get(Qt.Key(event.key()))
        if step is None or not places:
            super().keyPressEvent(event)
        elif self.selected not in places:
            self.chosen.emit(places[0 if step > 0 else -1])
        else:
            self.chosen.emit(places[min(max(places.index(self.selected) + step, 0), len(places) - 1)])

    def tip(self, at: QPointF) -> str:
        if self.report is None:
            return ""
        place = self.nearest(at)
        return facts_words(rows_of(self.report)[place], self.report) if place >= 0 else self.tooltip()


class QualityCharts(QWidget):
    """Both plots side by side; a point chosen in one is chosen in both."""

    chosen = Signal(int)

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("quality_charts")
        self.memory = QualityPlot("quality_memory", tr("Quality against memory"), "weight_bytes")
        self.speed = QualityPlot("quality_speed", tr("Quality against speed"), "rate")
        self.plots = self.memory, self.speed
        self.setLayout(zoomed(row(*((plot, 1) for plot in self.plots)), spacing=24))
        for plot in self.plots:
            plot.chosen.connect(self.chosen)

    def show_report(self, report: QualityReport | None, up: str) -> None:
        """`up` is "divergence" or "perplexity"."""
        for plot in self.plots:
            plot.show_report(report, up)

    def select(self, place: int) -> None:
        for plot in self.plots:
            plot.select(place)
