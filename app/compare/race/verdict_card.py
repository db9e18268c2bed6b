"""The end of a race, for the back row: the winner and its factor."""

from PySide6.QtCore import QRect
from PySide6.QtGui import QPainter
from PySide6.QtWidgets import QSizePolicy

from app.compare.race.verdict import Verdict
from app.plot.marks import draw_mark
from app.ui.look import theme
from app.ui.look.font_face import Face
from app.ui.painted import Painted


class VerdictCard(Painted):
    """In sight while presenting, once there is something to say."""

    head, face = Face(20, 650), Face(12)

    def __init__(self) -> None:
        super().__init__("verdict_card")
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        self.verdict: Verdict | None = None
        self.wanted = True  # a scene has words of its own
        self.restyle()

    def show_verdict(self, verdict: Verdict | None) -> None:
        self.verdict = verdict
        self.setAccessibleName(f"{verdict.words}. {verdict.reasons}" if verdict is not None else "")
        self.restyle()

    def restyle(self) -> None:
        self.setFixedHeight(round(self.head.height + self.face.height) + theme.px(6))
        self.setVisible(theme.presenting() and self.wanted and self.verdict is not None)
        super().restyle()

    def paint(self, painter: QPainter, dirty: QRect) -> None:
        t, px, told = theme.current(), theme.px, self.verdict
        if told is None:
            return
        x, y = px(16), round(self.head.ascent)
        if told.lane is not None:
            size = px(16)
            draw_mark(painter, told.lane, x + size / 2, y - self.head.cap / 2, size)
            x += size + px(10)
        room = self.width() - x - px(16)
        self.head.say(painter, x, y, self.head.cut(told.words, room), t.text)
        below = round(self.head.height + self.face.ascent) + px(2)
        self.face.say(painter, px(16), below, self.face.cut(told.reasons, self.width() - px(32)), t.secondary)
