"""The one style sheet over Fusion, made from the theme's tokens and the zoom. Roles are dynamic properties:
`widget.setProperty("role", "heading")`."""

from __future__ import annotations

from string import Template

from PySide6.QtGui import QColor
from PySide6.QtWidgets import QApplication, QStyleFactory

from app.ui import theme
from app.ui.theme import Theme, px

_SHEET = Template("""
QMainWindow, QDialog, QWidget[role="page"] { background: $window; }
QMainWindow::separator { background: transparent; width: ${s8}px; height: ${s8}px; }
QMainWindow::separator:hover { background: $hairline; }
QToolTip { background: $raised; color: $text; border: 1px solid $edge; padding: ${s4}px ${s6}px; }

QFrame[role="bar"] { background: $panel; border: none; border-bottom: 1px solid $hairline; }
QFrame[role="panel"] { background: $panel; border: 1px solid $rim; border-radius: ${s6}px; }
QFrame[role="grip"] { background: $panel; border: 1px solid $rim; border-bottom: none; border-top-left-radius: ${s6}px;
    border-top-right-radius: ${s6}px; }
QFrame[role="body"] { background: $panel; border: 1px solid $rim; border-top: none; border-bottom-left-radius: ${s6}px;
    border-bottom-right-radius: ${s6}px; }
QFrame[role="hairline"] { background: $hairline; border: none; min-height: 1px; max-height: 1px; }
QFrame[role="popup"] { background: $panel; border: 1px solid $edge; border-radius: ${s8}px; }
QScrollArea, QScrollArea > QWidget > QWidget[role="sheet"] { background: transparent; border: none; }

QLabel { background: transparent; color: $text; }
QLabel[role="brand"] { font-size: ${f14}px; font-weight: 600; }
QLabel[role="heading"] { color: $secondary; font-size: ${f11}px; font-weight: 600; letter-spacing: 0.4px; }
QLabel[role="title"] { font-weight: 600; }
QLabel[role="row"], QLabel[role="secondary"] { color: $secondary; }
QLabel[role="row"] { min-width: ${s86}px; max-width: ${s86}px; }
QLabel[role="note"] { color: $secondary; font-size: ${f12}px; }
QLabel[role="error"] { color: $bad; font-size: ${f12}px; }
QLabel[role="warning"] { color: $warn; font-size: ${f12}px; }
QLabel[role="figure"] { font-weight: 600; }
QLabel[role="key"] { background: $field; color: $secondary; border-radius: ${s4}px; padding: ${s2}px ${s6}px;
    font-size: ${f12}px; }

QPushButton { background: $field; color: $text; border: 1px solid transparent; border-radius: ${s6}px;
    padding: ${s6}px ${s12}px; font-weight: 500; min-height: ${s18}px; }
QPushButton:hover { background: $hover; }
QPushButton:pressed { background: $window; }
QPushButton:disabled { color: $faint; }
QPushButton:focus { border-color: $accent; }
QPushButton[role="primary"] { background: $accent; color: $on_accent; font-weight: 600; }
QPushButton[role="primary"]:hover { background: $accent_hover; }
QPushButton[role="primary"]:focus { border-color: $text; }
QPushButton[role="primary"]:disabled { background: $hover; color: $faint; }
QPushButton[role="page"] { background: transparent; color: $secondary; padding: ${s6}px ${s12}px; }
QPushButton[role="page"]:checked { background: $field; color: $text; }
QPushButton[role="quiet"], QToolButton { background: transparent; color: $secondary; border: 1px solid transparent;
    border-radius: ${s6}px; padding: ${s3}px ${s6}px; font-size: ${f12}px; font-weight: 500; min-height: ${s14}px; }
QPushButton[role="quiet"]:hover, QToolButton:hover { background: $hover; color: $text; }
QToolButton::menu-indicator { image: none; }
QPushButton[role="quiet"]:checked, QToolButton:checked { color: $accent; }
QPushButton[role="quiet"]:focus, QToolButton:focus { border-color: $accent; }
QPushButton#sampling_more { color: $secondary; padding-left: 0; text-align: left; }
QPushButton#sampling_more:hover { color: $text; background: transparent; }
QPushButton[role="quiet"]:disabled { color: $faint; }
QFrame[role="chip"] { background: $field; border: none; border-radius: ${s15}px; }
QPushButton[role="chip"] { background: transparent; border: 1px solid transparent; border-radius: ${s6}px;
    padding: ${s6}px ${s2}px; }
QPushButton[role="chip"]:hover { color: $accent; background: transparent; }
QPushButton[role="chip"]:focus { border-color: $accent; }
QPushButton[role="chip"]:disabled { color: $faint; }
QFrame[role="chip"] QToolButton { border-radius: ${s8}px; padding: 0 ${s5}px ${s2}px ${s5}px; font-size: ${f14}px; }
QPushButton[role="link"] { background: transparent; color: $accent; padding: ${s6}px ${s6}px; }
QPushButton[role="link"]:hover { color: $accent_hover; background: transparent; }
QPushButton[role="link"]:disabled { color: $faint; }
QPushButton[role="light"] { background: transparent; border: 1px solid transparent; text-align: left;
    padding: ${s4}px ${s4}px; font-weight: 400; }
QPushButton[role="light"]:hover { background: $field; }
QPushButton[role="light"]:focus { border-color: $accent; }
QPushButton::menu-indicator { image: none; width: 0; }
QPushButton[role="search"] { background: $field; color: $secondary; padding: ${s4}px ${s12}px; font-weight: 400; }
QPushButton[role="search"]:hover { background: $hover; color: $text; }

QLineEdit, QSpinBox, QDoubleSpinBox, QComboBox { background: $field; color: $text; border: 1px solid transparent;
    border-radius: ${s6}px; padding: ${s4}px ${s8}px; min-height: ${s18}px;
    selection-background-color: $accent; selection-color: $on_accent; }
QAbstractSpinBox QLineEdit, QAbstractSpinBox QLineEdit:hover { background: transparent; border: none;
    padding: 0; min-height: 0; }
QAbstractSpinBox::up-button, QAbstractSpinBox::down-button { width: 0; border: none; subcontrol-origin: border;
    subcontrol-position: top right; }
QLineEdit:hover, QSpinBox:hover, QDoubleSpinBox:hover, QComboBox:hover { background: $hover; }
QLineEdit:focus, QSpinBox:focus, QDoubleSpinBox:focus, QComboBox:focus { border-color: $accent; }
QLineEdit:disabled, QSpinBox:disabled, QDoubleSpinBox:disabled, QComboBox:disabled { color: $faint; }
QSpinBox[role="value"], QDoubleSpinBox[role="value"] { background: transparent; padding: ${s2}px ${s2}px; }
QSpinBox[role="value"]:hover, QDoubleSpinBox[role="value"]:hover { background: $field; }
QLineEdit[state="wrong"], QSpinBox[state="wrong"] { border-color: $bad; }
QLineEdit[role="search"] { background: transparent; font-size: ${f15}px; padding: ${s8}px ${s12}px; border: none; }
QComboBox::drop-down { border: none; width: ${s24}px; }
QComboBox::down-arrow { image: none; }
QComboBox QAbstractItemView, QListView[role="list"] { background: $raised; color: $text; border: 1px solid $edge;
    outline: none; padding: ${s4}px; selection-background-color: $hover; selection-color: $text; }
QListView[role="list"] { background: transparent; border: none; }
QListView[role="list"]::item { padding: ${s6}px ${s8}px; border-radius: ${s4}px; }
QComboBox QAbstractItemView::item { padding: ${s4}px ${s6}px; min-height: ${s20}px; border-radius: ${s4}px; }

QPlainTextEdit, QTextEdit { background: $field; color: $text; border: 1px solid transparent; border-radius: ${s6}px;
    padding: ${s4}px; selection-background-color: $accent; selection-color: $on_accent; }
QPlainTextEdit:focus, QTextEdit:focus { border-color: $accent; }
QFrame[role="field"] { background: $field; border: 1px solid transparent; border-radius: ${s8}px; }
QFrame[role="field"][focused="true"] { border-color: $accent; }
QFrame[role="field"][dropping="true"] { border: 1px dashed $accent; }
QFrame[role="field"] QPlainTextEdit { background: transparent; border: none; padding: 0; }

QSlider::groove:horizontal { background: $groove; height: ${s4}px; border-radius: ${s2}px; }
QSlider::sub-page:horizontal { background: $accent; height: ${s4}px; border-radius: ${s2}px; }
QSlider::handle:horizontal { background: $knob; width: ${s12}px; height: ${s12}px; margin: -${s4}px 0;
    border-radius: ${s6}px; border: none; }
QSlider::handle:horizontal:focus { border: 2px solid $accent; width: ${s8}px; height: ${s8}px; }
QSlider { min-height: ${s18}px; }

QProgressBar { background: $groove; border: none; border-radius: ${s2}px; min-height: ${s4}px; max-height: ${s4}px; }
QProgressBar::chunk { background: $accent; border-radius: ${s2}px; }

QScrollBar:vertical { background: transparent; width: ${s10}px; margin: 0; }
QScrollBar:horizontal { background: transparent; height: ${s10}px; margin: 0; }
QScrollBar::handle { background: $thumb; border-radius: ${s3}px; margin: ${s2}px; }
QScrollBar::handle:vertical { min-height: ${s24}px; }
QScrollBar::handle:horizontal { min-width: ${s24}px; }
QScrollBar::handle:hover { background: $faint; }
QAbstractScrollArea::corner { background: transparent; border: none; }
QScrollBar::add-line, QScrollBar::sub-line { width: 0; height: 0; }
QScrollBar::add-page, QScrollBar::sub-page { background: transparent; }

QTabWidget::pane { border: none; background: $panel; border-radius: ${s6}px; }
QTabWidget::tab-bar { left: ${s6}px; }
QTabBar { background: transparent; qproperty-drawBase: 0; qproperty-elideMode: ElideNone; }
QTabBar::tab { background: transparent; color: $secondary; padding: ${s6}px ${s8}px; margin: ${s2}px ${s2}px 0 0;
    border-bottom: 2px solid transparent; font-size: ${f12}px; font-weight: 600; }
QMainWindow > QTabBar { font-size: ${f12}px; font-weight: 600; }
QTabBar::tab:hover { color: $text; }
QTabBar::tab:selected { color: $text; border-bottom-color: $accent; }
QTabBar::tab:focus { color: $accent; }

QTableView, QTreeView { background: transparent; color: $text; border: none; gridline-color: transparent;
    selection-background-color: $hover; selection-color: $text; outline: none; }
QTableView::item { padding: 0 ${s6}px; border: none; }
QHeaderView { background: transparent; }
QHeaderView::section { background: $panel; color: $secondary; border: none; border-bottom: 1px solid $hairline;
    padding: ${s4}px ${s6}px; font-size: ${f11}px; font-weight: 600; }
QTableCornerButton::section { background: $panel; border: none; }

QMenu { background: $raised; color: $text; border: 1px solid $edge; border-radius: ${s6}px; padding: ${s4}px; }
QMenu::item { padding: ${s5}px ${s24}px ${s5}px ${s12}px; border-radius: ${s4}px; }
QMenu::item:selected { background: $hover; }
QMenu::item:disabled { color: $faint; }
QMenu::separator { height: 1px; background: $hairline; margin: ${s4}px ${s8}px; }
QMenu::indicator { width: ${s12}px; height: ${s12}px; left: ${s6}px; }

QFrame[role="banner"] { background: $panel; border: none; border-left: 3px solid $bad; border-radius: 0; }
QFrame[role="banner"][level="warning"] { border-left-color: $warn; }
QFrame[role="banner"][level="info"] { border-left-color: $accent; }
""")


def _css(color: QColor) -> str:
    return f"rgba({color.red()},{color.green()},{color.blue()},{color.alphaF():.3f})"


def style_sheet(tokens: Theme | None = None) -> str:
    """The style sheet of a theme at the current zoom."""
    t = tokens or theme.current()
    values: dict[str, object] = {name: _css(getattr(t, name)) for name in theme.COLORS}
    values["groove"] = _css(theme.over(t.edge, t.panel))
    values["thumb"] = _css(t.edge)
    values["rim"] = _css(t.panel if t.dark else t.hairline)  # on white, panels need an edge
    values["knob"] = "#ffffff" if t.dark else _css(t.accent)
    values |= {f"s{n}": px(n) for n in (2, 3, 4, 5, 6, 8, 10, 12, 14, 15, 18, 20, 24, 86)}
    values |= {f"f{n}": f"{max(theme.SMALLEST, n * theme.zoom()):g}" for n in (11, 12, 14, 15)}
    return _SHEET.substitute(values)


def apply(app: QApplication) -> None:
    """Dresses the application, now and after every change of theme or zoom."""
    app.setStyle(QStyleFactory.create("Fusion"))

    def dress() -> None:
        app.setFont(theme.ui())
        app.setPalette(theme.palette(theme.current()))
        app.setStyleSheet(style_sheet())

    def on_scheme() -> None:
        if theme.choice() == "system":
            theme.changes.theme_changed.emit()

    dress()
    theme.changes.theme_changed.connect(dress)
    app.styleHints().colorSchemeChanged.connect(on_scheme)
