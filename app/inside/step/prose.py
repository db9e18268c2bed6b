"""Words in a column: wrapped, of several colours, with a dot before them where a request is meant."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from PySide6.QtCore import QRectF
from PySide6.QtGui import QColor, QPainter

from app.inside.step.marks import draw_dot
from app.ui.look import theme
from app.ui.look.font_face import FontFace


class Tone(Enum):
    """The colour of words: what counts, what explains it, what needs attention."""

    STRONG = "text"
    QUIET = "secondary"
    WARN = "warn"

    @property
    def color(self) -> QColor:
        color = getattr(theme.current(), self.value)
        assert isinstance(color, QColor)
        return color


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Parts of one colour each, one after another. `request`: whose dot stands before it, -1 for none."""

    parts: tuple[tuple[str, Tone], ...]
    request: int = -1
    tip: str = ""

    @property
    def text(self) -> str:
        return " ".join(text for text, _ in self.parts)


@dataclass(frozen=True, slots=True)
class ParagraphLayout:
    """A paragraph in its place. `runs`: words on one line, where their baseline begins, and their tone."""

    paragraph: Paragraph
    box: QRectF
    runs: tuple[tuple[float, float, str, Tone], ...]


def lay_out(paragraph: Paragraph, face: FontFace, left: float, top: float, width: float) -> ParagraphLayout:
    """Wraps a paragraph to a width; words wider than a line are cut."""
    indent = theme.px(14) if paragraph.request >= 0 else 0
    line, space = round(face.height * 1.12), face.width(" ")
    x, y = float(indent), top + face.ascent
    runs: list[tuple[float, float, str, Tone]] = []
    for text, tone in paragraph.parts:
        run: list[str] = []
        begin = x
        for word in text.split():
            word = face.cut(word, width - indent)
            wide = face.width(word)
            if x > indent and x + wide > width:
                if run:
                    runs.append((left + begin, y, " ".join(run), tone))
                run, begin, x = [], float(indent), float(indent)
                y += line
            run.append(word)
            x += wide + space
        if run:
            runs.append((left + begin, y, " ".join(run), tone))
    bottom = y - face.ascent + line
    return ParagraphLayout(paragraph, QRectF(left, top, width, bottom - top), tuple(runs))


def draw(painter: QPainter, laid: Sequence[ParagraphLayout], face: FontFace, selected: int = -1) -> None:
    """Draws paragraphs; the dot of a request that is not the selected one is weaker."""
    for each in laid:
        if each.paragraph.request >= 0:
            middle = each.box.top() + face.ascent - face.middle
            draw_dot(painter, each.paragraph.request, selected, each.box.left(), middle)
        for x, baseline, text, tone in each.runs:
            face.say(painter, x, baseline, text, tone.color)
