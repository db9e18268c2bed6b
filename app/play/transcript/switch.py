"""How an answer's tokens are shown, which of its samples is, and what the grounds mean: a line above a transcript."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QBoxLayout, QButtonGroup, QWidget

from app import storage
from app.play.transcript.legend import TokenLegend
from app.play.transcript.styles import TokenMode
from app.ui import theme
from app.ui.controls import DropDown, button
from app.ui.layouts import fill, panel, row

KEY = "transcript/tokens"
TIPS = {
    TokenMode.TEXT: "The text alone",
    TokenMode.PROBABILITY: "Each token by its probability, as the model itself gave it, before temperature and filters",
    TokenMode.TIME: "Each token by the time it took: TTFT for the first, ITL for the others, against the median ITL",
}


class TokenSwitch(QWidget):
    """`mode` is remembered between starts; `sample` counts from 0."""

    mode_changed = Signal()
    sample_changed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("token_switch")
        self.modes = QButtonGroup(self)
        for i, mode in enumerate(TokenMode):
            name, tip, said = f"tokens_{mode.value.lower()}", TIPS[mode], f"Tokens: {mode.value}"
            each = button(name, mode.value, role="quiet", tip=tip, said=said, checkable=True)
            each.setAccessibleDescription(tip)
            self.modes.addButton(each, i)
        frame = panel(row(*self.modes.buttons(), margins=(2, 0, 2, 0), spacing=0), "chip")
        kept = str(storage.settings().value(KEY, TokenMode.TEXT.value))
        self.mode = next((mode for mode in TokenMode if mode.value == kept), TokenMode.TEXT)
        self.modes.button(list(TokenMode).index(self.mode)).setChecked(True)
        self.samples = DropDown("transcript_sample", said="Sample on show")
        self.samples.setSizeAdjustPolicy(DropDown.SizeAdjustPolicy.AdjustToContents)
        self.samples.hide()
        self.legend = TokenLegend()
        self.legend.hide()
        self._controls = row(frame, self.samples, None)
        self._line = fill(QBoxLayout(QBoxLayout.Direction.LeftToRight), self._controls, (self.legend, 1))
        self.setLayout(self._line)
        self.modes.idClicked.connect(self._on_mode)
        self.samples.activated.connect(lambda place: self.sample_changed.emit())

    @property
    def sample(self) -> int:
        return max(0, self.samples.currentIndex())

    def offer(self, samples: int) -> None:
        """Another request, with so many samples; the first is on show."""
        self.samples.clear()
        self.samples.addItems([f"Sample {i + 1} of {samples}" for i in range(samples)])
        self.samples.setVisible(samples > 1)

    def restyle(self) -> None:
        """The theme or the zoom is another."""
        self._line.setSpacing(theme.px(8))
        self._turn()

    def say(self, median: str = "", ttft: str = "", together: bool = False) -> None:
        """The legend of the mode, with the median ITL and the TTFT in words, and whether any tokens came together."""
        self.legend.say(self.mode, median, ttft, together)
        self._turn()

    def _turn(self) -> None:
        """The legend stands beside the controls, or below them where there is no room."""
        wide = self._controls.sizeHint().width() + self.legend.sizeHint().width() + theme.px(24)
        ways = QBoxLayout.Direction
        self._line.setDirection(ways.LeftToRight if wide <= self.width() else ways.TopToBottom)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._turn()

    def _on_mode(self, place: int) -> None:
        self.mode = list(TokenMode)[place]
        storage.settings().setValue(KEY, self.mode.value)
        self.mode_changed.emit()
