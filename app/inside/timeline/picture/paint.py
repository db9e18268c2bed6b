"""How the timeline panel draws what is above, on and below its slots: the queue, marks, stalls, tracks and legend."""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise, product

import numpy as np
from PySide6.QtCore import QPointF, QRect, QRectF, Qt
from PySide6.QtGui import QColor, QPainter, QPen

from app.inside.phases import PHASE_TITLES
from app.inside.timeline.axis import Axis, times_of
from app.inside.timeline.layout import Band, Bands
from app.inside.timeline.marks import MARK_WORDS, Mark, Marks
from app.inside.timeline.picture.glyphs import APART, SIZE, Glyphs, draw_glyph, with_room
from app.inside.timeline.picture.legend import (
    GAP,
    LEGEND,
    NEXT,
    SIDE,
    Sign,
    Swatches,
    adapter_signs,
    layers_of,
    micro_sign,
    rank_signs,
)
from app.inside.timeline.picture.shading import DIMMED
from app.inside.timeline.picture.stalls import draw_bracket
from app.inside.timeline.picture.tracks import (
    LAYERS,
    Grain,
    Hatch,
    Layer,
    TokenScale,
    crisp,
    host_shares,
    lane_picture,
    token_picture,
    token_scale,
)
from app.inside.timeline.ranks import KINDS, RankTimes
from app.inside.timeline.steps import TimelineSteps
from app.language import digits, tr
from app.plot.breaks import Break
from app.plot.folds import Folds
from app.plot.image import PixelImage, parts_of
from app.plot.inked import plate_of, say_on_plate
from app.ui.look import theme
from app.ui.look.font_face import Face
from engine.trace import Array

TOKENS, QUEUE = tr("tokens"), tr("queue")
LEAST_BAR = 8  # pixels of the design: on lower bars marks have no room
Segment = tuple[str, float, float]  # a phase, and where it begins and ends in pixels
STRENGTH = {
    "draft": 0.75,
    "sample": 0.44,
    "prepare": 0.52,
    "plan": 0.34,
    "commit": 0.6,
    "record": 0.22,
    "wait": 0.12,
}  # of the text
SHARE = 0.45  # of the accent: attention, the darker part of forward
MICRO = (0.95, 0.5, 0.72, 0.32)  # likewise: micro-batches in turn, neighbours unlike
LABELLED = 240  # steps in sight up to which segments have their names inside
# Pixels of the design that a step must have, on average, for its phases to have a place of their own; in narrower ones
# a lane's column shows whole steps, or their borders would beat against the pixels. And for phases with sharp borders.
NARROW, CRISP = 8, 60


class TimelinePaint:
    """Make a new one when the theme or the zoom changes. Pictures are made once a view, by `see`."""

    face = Face(11)

    def __init__(self, ratio: float) -> None:
        t = theme.current()
        self.ratio = ratio
        self.glyphs = Glyphs(ratio)
        self.ground = parts_of(t.panel)
        accent, text, grey = parts_of(t.accent), parts_of(t.text), parts_of(t.secondary)
        self._most = self.ground + 0.7 * (grey - self.ground)
        useful = self.ground + 0.72 * (accent - self.ground)
        layers = layers_of(useful, grey)
        self._tokens = tuple(layers[hatch] for hatch in (Hatch.NONE, Hatch.UP, Hatch.CROSSED, Hatch.DOWN))
        shades = {name: self.ground + share * (text - self.ground) for name, share in STRENGTH.items()}
        shades["forward"] = self.ground + 0.85 * (accent - self.ground)
        shades["attention"] = self.ground + SHARE * (accent - self.ground)
        self._host = tuple(Layer(shades[name]) for name in LAYERS)
        self._device = (Layer(shades["forward"], Hatch.NONE),)
        self._rank = (Layer(shades["forward"]), Layer(shades["commit"]), Layer(grey, Hatch.DOWN))
        micro = tuple(Layer(self.ground + share * (accent - self.ground)) for share in MICRO)
        self._stage = (*micro, *self._rank[1:])
        signs: dict[Sign, Layer] = {micro_sign(i): layer for i, layer in enumerate(micro)}
        self._swatches = Swatches(layers | signs | dict(zip(KINDS, self._rank)), self.ground, ratio)
        self._pictures: dict[str, PixelImage] = {}
        self.scale = TokenScale(1.0)
        self._rim = 1.0  # tokens at the upper rim

    # -- pictures of a view ---------------------------------------------------------------------------------------

    def see(
        self,
        steps: TimelineSteps,
        ranks: RankTimes,
        span: tuple[float, float],
        axis: Axis,
        folds: Folds,
        columns: int,
        bands: Bands,
        budget: int | None,
    ) -> None:
        """Makes the pictures of the tracks for what is in sight."""
        self._pictures, tokens, lanes = {}, bands.tokens, bands.lanes
        begin, end = span
        edges = np.linspace(begin, end, columns + 1)
        scale = theme.zoom() * self.ratio
        grain = Grain(max(4, round(6 * scale)), max(1.0, scale), round(begin * columns / (end - begin)))
        if tokens.height:
            seen = steps.tokens(edges, axis, folds)
            self.scale = token_scale(float(seen.most.max(initial=0.0)), budget)
            rim = self.face.height if self.scale.beyond and tokens.height >= 3 * self.face.height else 0.0
            self._rim = self.scale.top / (1 - rim / tokens.height)
            height = max(1, round(tokens.height * self.ratio))
            picture = token_picture(seen, self._rim, height, self._tokens, self.ground, self._most, grain)
            self._pictures["tokens"] = PixelImage(picture, self.ratio)
        if lanes:
            values = np.stack((edges[:-1], edges[1:]), axis=1)
            times = folds.times(values) if axis is Axis.TIME else times_of(steps.begin, steps.end, values)
            seconds = float(times[0, 0]), float(times[-1, -1])
            each = self._step_width(steps, seconds if axis is Axis.TIME else span, axis, columns)
            if each < NARROW:
                times = steps.whole(times)
            height = max(1, round(lanes[0].height * self.ratio))
            host = host_shares(steps.phases(times), times)
            busy = np.diff(steps.device(times))[:, 0] / np.maximum(np.diff(times)[:, 0], 1e-12)
            layers = {"CPU": (crisp(host) if each >= CRISP else host, self._host)}
            if bands.device:
                layers["GPU"] = busy[None], self._device
            looks = self._stage if ranks.micro.most else self._rank
            layers |= {f"rank {i}": (shares, looks) for i, shares in enumerate(ranks.shares(times))}
            for (name, (shares, looks)), _ in zip(layers.items(), lanes):
                picture = lane_picture(shares, height, looks, self.ground, grain)
                self._pictures[name] = PixelImage(picture, self.ratio)

    def _step_width(self, steps: TimelineSteps, span: tuple[float, float], axis: Axis, columns: int) -> float:
        """Pixels of the design that a step has, one with another."""
        first, last = steps.in_sight(*span) if axis is Axis.TIME else (int(span[0]), min(int(span[1]) + 1, len(steps)))
        return columns / max(1, last - first) / (theme.zoom() * self.ratio)

    # -- tracks ---------------------------------------------------------------------------------------------------

    def tokens(self, painter: QPainter, area: QRect, band: Band) -> None:
        """Tokens a step, under the budget's line."""
        t, face = theme.current(), self.face
        self._track(painter, area, band, "tokens", TOKENS, band.bottom - 1)
        right, scale = area.left() - theme.px(8), self.scale
        most = scale.budget if scale.budget and not scale.beyond else scale.top
        top = digits(f"{most:,.0f}") if most >= 10 else f"{most:.3g}"
        if band.height >= 2 * face.height:
            y = band.bottom - most / self._rim * band.height
            face.say(painter, right, y + face.cap, top, t.secondary, before=1)
        if scale.budget and not (scale.beyond and theme.presenting()):
            y = self._budget_y(band)
            painter.setPen(QPen(t.secondary, 1, Qt.PenStyle.DashLine if scale.beyond else Qt.PenStyle.SolidLine))
            painter.drawLine(QPointF(area.left(), round(y) + 0.5), QPointF(area.right(), round(y) + 0.5))
            painter.setPen(Qt.PenStyle.NoPen)

    def _budget_y(self, band: Band) -> float:
        scale = self.scale
        return float(band.top) if scale.beyond else band.bottom - scale.budget / self._rim * band.height

    def budget(self, painter: QPainter, area: QRect, band: Band, breaks: Sequence[Break]) -> None:
        """The name of the budget's line, below it: as far to the right as no break of the axis cuts it."""
        face, scale = self.face, self.scale
        if not scale.budget or (scale.beyond and theme.presenting()):
            return
        baseline = self._budget_y(band) + theme.px(1) + face.ascent
        beyond = tr("budget {tokens:,} ↑", tokens=scale.budget), f"{scale.budget:,.0f} ↑"
        said = beyond if scale.beyond else (tr("token budget"), tr("budget"))
        free = [area.right() - theme.px(2), *(each.left - theme.px(5) for each in reversed(breaks))]
        for words, right in product(said, free):
            plate = plate_of(face, right - face.width(words), baseline, words)
            met = any(each.left < plate.right() and plate.left() < each.right for each in breaks)
            if plate.left() >= area.left() and not met:
                say_on_plate(painter, face, right - face.width(words), baseline, words)
                return
        if area.width() >= face.width(said[-1]):
            say_on_plate(painter, face, free[0] - face.width(said[-1]), baseline, said[-1])

    def lanes(
        self,
        painter: QPainter,
        area: QRect,
        whole: Bands,
        segments: Sequence[Segment],
        clocked: bool,
        rank_title: Callable[[int], str],
    ) -> None:
        """What the host did, and when a device computed, or may have where it was not `clocked`, and what each rank;
        `segments` are named where they have room."""
        t, face, bands = theme.current(), self.face, whole.lanes
        names = ["CPU", *["GPU"] * whole.device]
        names += [f"rank {i}" for i in range(len(bands) - len(names))]
        titles = names[: 1 + whole.device] + [rank_title(i) for i in range(len(names) - 1 - whole.device)]
        for name, title, band in zip(names, titles, bands):
            self._track(painter, area, band, name, title, self._baseline(band))
            if name == "GPU" and not clocked:
                say_on_plate(painter, face, area.left() + theme.px(4), self._baseline(band), tr("busy at most"))
        for name, left, right in segments if bands else ():
            left, right = max(left, area.left()), min(right, area.right() + 1)
            words = PHASE_TITLES[name]
            wide = face.width(words)
            if right - left >= wide + theme.px(6):
                ink = t.panel if name in ("forward", "launch", "commit", "prepare") else t.text
                face.say(painter, (left + right - wide) / 2, self._baseline(bands[0]), words, ink)

    def _track(self, painter: QPainter, area: QRect, band: Band, name: str, title: str, baseline: float) -> None:
        """Its picture above a rule, and its title beside it."""
        t = theme.current()
        if name in self._pictures:
            painter.drawImage(QPointF(area.left(), band.top), self._pictures[name])
        painter.fillRect(QRectF(area.left(), band.bottom, area.width(), 1), t.hairline)
        self.face.say(painter, area.left() - theme.px(8), baseline, title, t.secondary, before=1)

    def _baseline(self, band: Band) -> float:
        """Of words in the middle of a band."""
        return band.top + (band.height + self.face.cap) / 2

    # -- the queue and the marks ----------------------------------------------------------------------------------

    def queue(
        self, painter: QPainter, area: QRect, band: Band, waiting: Array, marks: Marks, x: Array, selected: int | None
    ) -> None:
        """How many wait, by pixel, and who came in when."""
        t, face = theme.current(), self.face
        face.say(painter, area.left() - theme.px(8), self._baseline(band), QUEUE, t.secondary, before=1)
        grey = theme.faded(t.secondary, 0.28)
        heights = np.ceil(waiting / max(1, waiting.max(initial=0)) * (band.height - 2))
        changes = [*np.flatnonzero(np.diff(heights, prepend=-1.0)).tolist(), len(heights)]
        for begin, end in pairwise(changes):
            high = float(heights[begin])
            painter.fillRect(QRectF(area.left() + begin, band.bottom - 1 - high, end - begin, high), grey)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        middle = band.top + band.height / 2
        for i in with_room(marks.kind, x, np.zeros(len(x), np.int64), theme.px(APART) / 2).tolist():
            request, kind = int(marks.request[i]), Mark(int(marks.kind[i]))
            painter.setOpacity(1.0 if selected in (None, request) else DIMMED)
            color = theme.request_color(request) if kind is Mark.SUBMITTED else None
            draw_glyph(painter, kind, float(x[i]), middle, theme.px(SIZE), color)
        painter.setOpacity(1.0)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, False)

    def marks(self, painter: QPainter, marks: Marks, x: Array, y: Array, bar: float, selected: int | None) -> None:
        """Marks on the slots' bars, `y` their middles."""
        if bar < LEAST_BAR * theme.zoom() - 0.5:
            return
        for i in with_room(marks.kind, x, marks.slot, theme.px(APART)).tolist():
            painter.setOpacity(1.0 if selected in (None, int(marks.request[i])) else DIMMED)
            self.glyphs.draw(painter, Mark(int(marks.kind[i])), float(x[i]), float(y[i]))
        painter.setOpacity(1.0)

    def budgets(self, painter: QPainter, area: QRect, x: Array, bottom: int) -> None:
        """Where a person set another budget: a line through all that was computed within it."""
        painter.setPen(QPen(theme.faded(theme.current().accent, 0.7), 1, Qt.PenStyle.DashLine))
        for at in x[(x >= area.left()) & (x <= area.right())].tolist():
            painter.drawLine(QPointF(round(at) + 0.5, 0), QPointF(round(at) + 0.5, bottom))
        painter.setPen(Qt.PenStyle.NoPen)

    # -- the legend -----------------------------------------------------------------------------------------------

    def legend(
        self,
        painter: QPainter,
        left: int,
        right: int,
        band: Band,
        kinds: Sequence[Mark],
        stalls: str,
        ranks: RankTimes,
        adapters: Sequence[str],
    ) -> None:
        """What colours, patterns and shapes mean, as far as there is room; those of ranks' lanes on a line of their
        own."""
        baseline = band.top + theme.px(4) + self.face.ascent
        signs: list[tuple[str, Mark | Sign | QColor | None]] = [*adapter_signs(adapters), *LEGEND]
        signs += [(MARK_WORDS[kind], kind) for kind in kinds]
        self._signs(painter, left, right, baseline, [*signs, (stalls, None)])
        if ranks.ranks:
            below = baseline + math.ceil(self.face.height)
            self.face.say(painter, left - theme.px(8), below, tr("ranks"), theme.current().secondary, before=1)
            self._signs(painter, left, right, below, rank_signs(ranks.micro.most))

    def _signs(
        self,
        painter: QPainter,
        left: int,
        right: int,
        baseline: float,
        signs: Sequence[tuple[str, Mark | Sign | QColor | None]],
    ) -> None:
        t, face = theme.current(), self.face
        middle = baseline - face.cap / 2
        x, size = float(left), theme.px(SIDE)
        for words, sign in signs:
            wide = size + theme.px(GAP) + face.width(words)
            if x + wide > right:
                break
            box = QRectF(x, round(middle - size / 2), size, size)
            if isinstance(sign, Hatch | str):
                self._swatches.draw(painter, box, sign)
            elif isinstance(sign, QColor):
                painter.fillRect(box, sign)
            elif sign is not None:
                painter.setRenderHint(QPainter.RenderHint.Antialiasing)
                draw_glyph(painter, sign, box.center().x(), middle, theme.px(SIZE))
                painter.setRenderHint(QPainter.RenderHint.Antialiasing, False)
            else:
                draw_bracket(painter, box)
            face.say(painter, x + size + theme.px(GAP), baseline, words, t.secondary)
            x += wide + theme.px(NEXT)
