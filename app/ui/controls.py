"""Controls: buttons and lines made in one call, and what the style sheet alone cannot draw: a drop-down, a switch,
numbers, a slider with its value."""

from collections.abc import Callable, Sequence
from functools import partial
from math import exp, log
from typing import Any

from PySide6.QtCore import QPointF, QRectF, QSize, Qt, Signal, SignalInstance
from PySide6.QtGui import QMouseEvent, QPainter, QPaintEvent, QPen, QStandardItemModel, QWheelEvent
from PySide6.QtWidgets import (
    QAbstractButton,
    QComboBox,
    QDoubleSpinBox,
    QHBoxLayout,
    QLineEdit,
    QListView,
    QPushButton,
    QSlider,
    QSpinBox,
    QStyle,
    QStyleOptionComboBox,
    QStyleOptionSlider,
    QStylePainter,
    QWidget,
)

from app.language import tr
from app.ui.layout.boxes import fill, named
from app.ui.layout.zoomed import sized
from app.ui.look import theme


def button(
    name: str,
    text: str = "",
    act: Callable[..., object] | SignalInstance | None = None,
    *,
    role: str = "",
    tip: str = "",
    said: str = "",
    checkable: bool = False,
) -> QPushButton:
    """`said` is for screen readers, where the text alone does not tell; `act` follows a click."""
    made = named(QPushButton(text), name, role, said=said, tip=tip)
    made.setCheckable(checkable)
    if act is not None:
        made.clicked.connect(act)
    return made


def line_edit(name: str, said: str = "", hint: str = "") -> QLineEdit:
    """`hint` stands in it while it is empty."""
    made = named(QLineEdit(), name, said=said)
    made.setPlaceholderText(hint)
    return made


class DropDown(QComboBox):
    """A combo box with a chevron. It takes no wheel turns meant for the panel it stands on. An item that has no room
    ends with an ellipsis; with `most`, it is as wide as its widest item, up to so many pixels of the design."""

    def __init__(self, name: str, items: Sequence[tuple[str, object]] = (), said: str = "", *, most: float = 0) -> None:
        super().__init__()
        named(self, name, said=said)
        self._most = most
        policies = QComboBox.SizeAdjustPolicy
        self.setSizeAdjustPolicy(policies.AdjustToContents if most else policies.AdjustToMinimumContentsLengthWithIcon)
        self.setMinimumContentsLength(6)
        for text, value in items:
            self.addItem(text, value)

    def set_value(self, value: object) -> None:
        """The item of this value; the first where there is none."""
        self.setCurrentIndex(max(0, self.findData(value)))

    def offer(self, value: object, offered: bool) -> None:
        """Whether the item of this value is among those that can be chosen."""
        at, items, view = self.findData(value), self.model(), self.view()
        assert isinstance(items, QStandardItemModel)
        assert isinstance(view, QListView)
        items.item(at).setEnabled(offered)
        view.setRowHidden(at, not offered)

    def sizeHint(self) -> QSize:
        hint = super().sizeHint()
        return QSize(min(hint.width(), theme.px(self._most)), hint.height()) if self._most else hint

    def minimumSizeHint(self) -> QSize:
        hint = super().minimumSizeHint()
        return QSize(min(hint.width(), theme.px(self._most)), hint.height()) if self._most else hint

    @property
    def words(self) -> str:
        """What can be read of its item."""
        option, part = QStyleOptionComboBox(), QStyle.SubControl.SC_ComboBoxEditField
        self.initStyleOption(option)
        room = self.style().subControlRect(QStyle.ComplexControl.CC_ComboBox, option, part, self).width()
        return self.fontMetrics().elidedText(self.currentText(), Qt.TextElideMode.ElideRight, room)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter, option, tokens = QStylePainter(self), QStyleOptionComboBox(), theme.current()
        self.initStyleOption(option)
        option.currentText = self.words
        painter.drawComplexControl(QStyle.ComplexControl.CC_ComboBox, option)
        painter.drawControl(QStyle.ControlElement.CE_ComboBoxLabel, option)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(QPen(tokens.secondary if self.isEnabled() else tokens.faint, 1.4))
        x, y, w = self.width() - theme.px(14), self.height() / 2, theme.px(3.5)
        painter.drawPolyline([QPointF(x - w, y - w / 2), QPointF(x, y + w / 2), QPointF(x + w, y - w / 2)])
        painter.end()

    def wheelEvent(self, event: QWheelEvent) -> None:
        event.ignore()


class Switch(QAbstractButton):
    """On or off, told by place as well as by colour."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__()
        named(self, name, said=text)
        self.setCheckable(True)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setCursor(Qt.CursorShape.PointingHandCursor)

    def sizeHint(self) -> QSize:
        return QSize(theme.px(30), theme.px(18))

    def minimumSizeHint(self) -> QSize:
        return self.sizeHint()

    def paintEvent(self, event: QPaintEvent) -> None:
        tokens = theme.current()
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        wide, high = theme.px(28), theme.px(16)
        track = QRectF(self.width() - wide - 1, (self.height() - high) / 2, wide, high)
        on = self.isChecked()
        painter.setPen(QPen(tokens.text if self.hasFocus() else tokens.edge, 1))
        painter.setBrush(tokens.accent if on else tokens.field)
        painter.drawRoundedRect(track, high / 2, high / 2)
        knob = high - theme.px(5)
        left = track.right() - knob - theme.px(2.5) if on else track.left() + theme.px(2.5)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush((tokens.on_accent if on else tokens.secondary) if self.isEnabled() else tokens.faint)
        painter.drawEllipse(QRectF(left, track.center().y() - knob / 2, knob, knob))
        painter.end()


class _Patient:
    """Before a control's class: a turn of the wheel changes it only where it has the focus; else what it stands on
    scrolls."""

    def wheelEvent(self: Any, event: QWheelEvent) -> None:
        if self.hasFocus():
            super().wheelEvent(event)  # type: ignore[misc]
        else:
            event.ignore()


class Number(_Patient, QSpinBox):
    """A whole number, grouped by thousands; no wheel unless it has the focus, no arrows."""

    def __init__(
        self, name: str, low: int, high: int, value: int, suffix: str = "", step: int = 1, *, least: str = ""
    ) -> None:
        """`least`: what the lowest value is called."""
        super().__init__()
        self.setRange(low, high)
        self.setSingleStep(step)
        self.setValue(value)
        _plain(self, name, suffix, least)


class Amount(_Patient, QDoubleSpinBox):
    """A number from 0 on with two decimals, as a `Number` otherwise."""

    def __init__(self, name: str, high: float, suffix: str = "", step: float = 0.1, *, least: str = "") -> None:
        super().__init__()
        self.setRange(0.0, high)
        self.setSingleStep(step)
        _plain(self, name, suffix, least)


def _plain(spin: QSpinBox | QDoubleSpinBox, name: str, suffix: str, least: str) -> None:
    spin.setObjectName(name)
    spin.setSpecialValueText(least)
    spin.setSuffix(suffix)
    spin.lineEdit().setTextMargins(7, 0, 4, 0)
    spin.setGroupSeparatorShown(True)
    spin.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
    spin.setKeyboardTracking(False)


class PowerOfTwo(Number):
    """A number whose steps double and halve."""

    def stepBy(self, steps: int) -> None:
        value = self.value()
        for _ in range(abs(steps)):
            value = value * 2 if steps > 0 else value // 2
        self.setValue(value)


class _Value(_Patient, QDoubleSpinBox):
    def __init__(self) -> None:
        super().__init__()
        self.setProperty("role", "value")
        self.setAlignment(Qt.AlignmentFlag.AlignRight)
        self.setGroupSeparatorShown(True)
        self.setKeyboardTracking(False)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)


class Slider(QSlider):
    """From 0 to `steps`, a twentieth of them a page. A click goes where it points."""

    def __init__(self, name: str, said: str, steps: int) -> None:
        super().__init__(Qt.Orientation.Horizontal)
        named(self, name, said=said)
        self.setRange(0, steps)
        self.setPageStep(steps // 20)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        option, style = QStyleOptionSlider(), self.style()
        self.initStyleOption(option)
        part = partial(style.subControlRect, QStyle.ComplexControl.CC_Slider, option)
        handle = part(QStyle.SubControl.SC_SliderHandle, self)
        if event.button() is Qt.MouseButton.LeftButton and not handle.contains(event.position().toPoint()):
            groove = part(QStyle.SubControl.SC_SliderGroove, self)
            at, length = round(event.position().x()) - groove.x() - handle.width() // 2, groove.width() - handle.width()
            self.setValue(QStyle.sliderValueFromPosition(0, self.maximum(), at, length))
        super().mousePressEvent(event)

    def show_place(self, place: int) -> None:
        """Stands there, and tells nobody."""
        blocked = self.blockSignals(True)
        self.setValue(place)
        self.blockSignals(blocked)


class _Bar(Slider):
    def wheelEvent(self, event: QWheelEvent) -> None:
        event.ignore()


class SliderValue(QWidget):
    """A slider and the number it stands for, either of which can be moved. `logarithmic` gives small values room."""

    value_changed = Signal(float)
    STEPS = 400

    def __init__(
        self,
        name: str,
        text: str,
        low: float,
        high: float,
        value: float,
        *,
        step: float = 0.05,
        logarithmic: bool = False,
    ) -> None:
        """A `step` of 1 or more makes it a whole number."""
        super().__init__()
        self._low, self._high, self._log = low, high, logarithmic
        self.setAccessibleName(text)
        self.slider = _Bar(f"{name}_slider", tr("{title}, slider", title=text), self.STEPS)
        self.slider.setPageStep(self.STEPS // 10)
        self.slider.setMinimumWidth(40)
        self.box = sized(named(_Value(), name, said=text), width=52)
        self.box.setDecimals(0 if step >= 1 else 2)
        self.box.setRange(low, high)
        self.box.setSingleStep(step)
        self._step = step
        fill(QHBoxLayout(self), (self.slider, 1), self.box, spacing=6)
        self.setFocusProxy(self.slider)
        self.slider.valueChanged.connect(self._on_slid)
        self.box.valueChanged.connect(self._on_typed)
        self.box.setValue(value)
        self._on_typed(self.box.value())

    def value(self) -> float:
        return self.box.value()

    def set_value(self, value: float) -> None:
        self.box.setValue(value)

    def _place(self, value: float) -> int:
        if self._log:
            return round(self.STEPS * log(max(value, self._low) / self._low) / log(self._high / self._low))
        return round(self.STEPS * (value - self._low) / (self._high - self._low))

    def _on_slid(self, place: int) -> None:
        if self._log:
            value = self._low * exp(place / self.STEPS * log(self._high / self._low))
        else:
            value = self._low + (self._high - self._low) * place / self.STEPS
        value = round(value / self._step) * self._step
        if place != self._place(self.box.value()):
            self.box.setValue(value)

    def _on_typed(self, value: float) -> None:
        self.slider.show_place(self._place(value))
        self.value_changed.emit(value)
