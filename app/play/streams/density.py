"""How close stream cards stand: a few to be read, the usual wall, or many at a glance."""

from dataclasses import dataclass
from enum import StrEnum

from PySide6.QtCore import QSize

from app.language import tr
from app.ui.look import theme
from app.ui.look.font_face import Face


class Density(StrEnum):
    """What a person may choose, by what is kept of it between starts; `TITLES` has its words."""

    AUTO = "by their number"
    READING = "a few, to read"
    USUAL = "cards"
    DENSE = "many at a glance"


TITLES = {
    Density.AUTO: tr("by their number"),
    Density.READING: tr("a few, to read"),
    Density.USUAL: tr("cards"),
    Density.DENSE: tr("many at a glance"),
}


class Look:
    """The cards of a density; lengths in pixels of the design, and how many lines of text they have."""

    text = Face(12.5, mono=True)
    pad, above, between, below = 12, 9, 5, 12  # left and right, over the head, under it, under the text
    gap, narrowest, widest = 8, 240, 360
    fewest, most = 4, 12
    small = Face(12)
    from_top = False  # whether an answer begins under its prompt, or ends at the card's foot

    @property
    def line_height(self) -> int:
        return max(theme.px(17), round(self.text.metrics.lineSpacing() * 1.1))

    @property
    def head(self) -> int:
        """To the foot of the line with its state."""
        return theme.px(self.above) + max(theme.px(17), round(self.small.height))

    @property
    def text_top(self) -> int:
        return self.head + theme.px(self.between)

    def height_of(self, lines: int) -> int:
        """A card's height for so many lines of text."""
        return self.text_top + lines * self.line_height + theme.px(self.below)

    def lines_in(self, height: float) -> int:
        """How many lines a card of this height has; perhaps fewer than the fewest, or more than the most."""
        return int((height - self.height_of(0)) // self.line_height)


class ReadingLook(Look):
    text = Face(15, mono=True)
    pad, above, between, below = 20, 14, 10, 16
    narrowest, widest = 280, 860
    fewest, most = 8, 200
    from_top = True


class DenseLook(Look):
    text = Face(12, mono=True)
    pad, above, between, below = 8, 5, 2, 6
    gap, narrowest = 6, 164
    fewest = 2


LOOKS = {Density.READING: ReadingLook(), Density.USUAL: Look(), Density.DENSE: DenseLook()}
TO_READ = 4  # answers that are shown to be read


@dataclass(frozen=True, slots=True)
class Plan:
    """A wall of cards: how they look, how many stand beside each other, how wide they are, and their lines."""

    look: Look
    columns: int
    width: int
    lines: int

    @property
    def pitch(self) -> int:
        """From one row of cards to the next."""
        return self.look.height_of(self.lines) + theme.px(self.look.gap)

    def holds(self, count: int, size: QSize) -> bool:
        """Whether so many cards are in sight at once."""
        return -(-count // self.columns) * self.pitch - theme.px(self.look.gap) <= size.height()


def planned(density: Density, count: int, size: QSize) -> Plan:
    """The wall for so many cards in a room of this size. By their number: the largest of which all are in sight, where
    any is; to be read are but a few."""
    match density:
        case Density.AUTO:
            plans = [planned(each, count, size) for each in LOOKS]
            fit = (plan for plan in plans[count > TO_READ :] if plan.holds(count, size))
            return next(fit, plans[-1])
        case Density.DENSE:
            return _dense(count, size)
        case _:
            look = LOOKS[density]
            columns = _columns(look, size)
            if density is Density.READING:
                rows = -(-max(count, 1) // min(columns, TO_READ))
                columns = min(columns, TO_READ, -(-max(count, 1) // rows))  # no row has a hole that another could fill
            return _plan(look, columns, count, size)


def _dense(count: int, size: QSize) -> Plan:
    """The columns that show most of every answer at once; as many as there is room for where not all can be shown."""
    look = LOOKS[Density.DENSE]
    most = _columns(look, size)
    gap, best, shown = theme.px(look.gap), most, 0.0
    for columns in range(1, most + 1):
        rows = max(1, -(-count // columns))
        lines = min(look.lines_in((size.height() + gap) / rows - gap), look.most)
        text = lines * (_width(look, columns, size) - 2 * theme.px(look.pad))
        if lines >= 1 and text > shown:
            best, shown = columns, text
    return _plan(look, best, count, size, least=1 if shown else look.fewest)


def _plan(look: Look, columns: int, count: int, size: QSize, least: int = 0) -> Plan:
    rows, gap = max(1, -(-count // columns)), theme.px(look.gap)
    lines = look.lines_in((size.height() + gap) / rows - gap)
    return Plan(look, columns, _width(look, columns, size), min(look.most, max(least or look.fewest, lines)))


def _columns(look: Look, size: QSize) -> int:
    gap = theme.px(look.gap)
    return max(1, (size.width() + gap) // (theme.px(look.narrowest) + gap))


def _width(look: Look, columns: int, size: QSize) -> int:
    return min(theme.px(look.widest), (size.width() - theme.px(look.gap) * (columns - 1)) // columns)
