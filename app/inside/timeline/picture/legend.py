"""What the hatches of slots and tracks mean."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from PySide6.QtCore import QRect, QRectF
from PySide6.QtGui import QColor, QPainter
from PySide6.QtWidgets import QSizePolicy

from app.inside.timeline.picture.tracks import Grain, Hatch, Layer, lane_picture
from app.inside.timeline.ranks import SHADES
from app.language import tr
from app.plot.image import PixelImage, parts_of
from app.ui.look import theme
from app.ui.look.font_face import Face
from app.ui.painted import Painted
from engine.trace import Array

LEGEND = (
    (tr("prefill"), Hatch.UP),
    (tr("decode"), Hatch.NONE),
    (tr("padding, held"), Hatch.DOWN),
    (tr("thrown away"), Hatch.CROSSED),
)
AGAIN = tr("thrown away or computed again")
RANKS = ((tr("computing"), "computing"), (tr("communicating"), "communicating"), (tr("waiting for a rank"), "waiting"))
WAITS = tr("waits for the others' prompts")
HANDED, BUBBLE = (tr("handed on"), "communicating"), (tr("bubble"), "waiting")
Sign = Hatch | str  # of slots, and what a rank did
SIDE, GAP, NEXT = 9, 5, 14  # pixels of the design: a swatch, the room to its words, and to the next one


def layers_of(own: Array, grey: Array) -> dict[Sign, Layer]:
    """How each hatch is drawn: the useful in a colour of its own, the others in grey."""
    colors = {Hatch.NONE: own, Hatch.UP: own, Hatch.CROSSED: grey, Hatch.DOWN: grey}
    return {hatch: Layer(color, hatch) for hatch, color in colors.items()}


def rank_signs(micro_batches: int) -> list[tuple[str, str]]:
    """What ranks' lanes look like; those of a pipeline with so many micro-batches in a step."""
    if not micro_batches:
        return list(RANKS)
    shown = range(min(micro_batches, SHADES))
    return [*((tr("micro-batch {number}", number=i + 1), micro_sign(i)) for i in shown), HANDED, BUBBLE]


def adapter_signs(adapters: Sequence[str]) -> list[tuple[str, QColor]]:
    """The colours of a model's adapters, after that of requests that go through none; nothing where it has none."""
    names = (tr("no adapter"), *adapters) if adapters else ()
    return [(name, theme.request_color(number)) for number, name in enumerate(names)]


def micro_sign(shade: int) -> str:
    return f"micro-batch {shade}"


class Swatches:
    """Squares with a hatch in them, each made once: for one theme, one zoom, one ratio."""

    def __init__(self, layers: Mapping[Sign, Layer], ground: Array, ratio: float) -> None:
        self._layers, self._ground, self._ratio = layers, ground, ratio
        self._made: dict[Sign, PixelImage] = {}

    def draw(self, painter: QPainter, box: QRectF, hatch: Sign) -> None:
        if hatch not in self._made:
            side, scale = max(1, round(box.width() * self._ratio)), theme.zoom() * self._ratio
            grain = Grain(max(3, round(4 * scale)), max(1.0, scale), 0)
            pixels = lane_picture(np.ones((1, side)), side, (self._layers[hatch],), self._ground, grain)
            self._made[hatch] = PixelImage(pixels, self._ratio)
        painter.drawImage(box, self._made[hatch])


class SlotsLegend(Painted):
    """One line: what the bars of slots look like, as much of it as there is room for. `again`: whether a lane has no
    cache, and so computes again what it had computed."""

    sharp = True
    face = Face(12)

    def __init__(self, again: bool = False) -> None:
        super().__init__("slots_legend", "")
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        self.restyle()
        self.tell(again)

    def tell(self, again: bool, adapters: Sequence[str] = ()) -> None:
        """`adapters`: those that bars have the colours of."""
        crossed = {Hatch.CROSSED: AGAIN} if again else {}
        self._signs = [(crossed.get(hatch, words), hatch) for words, hatch in LEGEND]
        self._adapters = adapters
        names = [name for name, _ in adapter_signs(adapters)]
        told = *names, *(words for words, _ in self._signs), WAITS
        self.setAccessibleName(tr("Legend: {signs}", signs=", ".join(told)))
        self.update()

    def restyle(self) -> None:
        self._swatches: Swatches | None = None
        self.setFixedHeight(math.ceil(max(self.face.height, self.face.cap + 2 * self.face.descent)))
        super().restyle()

    def paint(self, painter: QPainter, dirty: QRect) -> None:
        t, face, px, middle = theme.current(), self.face, theme.px, self.height() / 2
        if self._swatches is None:
            ground, accent, grey = map(parts_of, (t.window, t.accent, t.secondary))
            self._swatches = Swatches(layers_of(accent, grey), ground, self.devicePixelRatioF())
        side, x = px(SIDE), float(px(16))
        signs: Sequence[tuple[str, Hatch | QColor | None]]
        signs = *adapter_signs(self._adapters), *self._signs, (WAITS, None)
        for words, hatch in signs:
            wide = side if hatch is not None else 2 * side
            if x + wide + px(GAP) + face.width(words) > self.width():
                break
            box = QRectF(x, round(middle - side / 2), side, side)
            if isinstance(hatch, QColor):
                painter.fillRect(box, hatch)
            elif hatch is not None:
                self._swatches.draw(painter, box, hatch)
            else:
                thick = round(theme.stroke())
                painter.fillRect(QRectF(x, round(middle - thick / 2), wide, thick), t.accent)
            face.say(painter, x + wide + px(GAP), middle + face.cap / 2, words, t.secondary)
            x += wide + px(GAP) + face.width(words) + px(NEXT)
