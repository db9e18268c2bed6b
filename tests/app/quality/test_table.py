import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QGuiApplication
from pytestqt.qtbot import QtBot

from app.quality.table import DIVERGENCE, FIGURES, NAME, QualityTableView
from app.quality.words import COLUMNS
from app.ui.look import theme
from tests.app.quality.reports import REPORT

RATE = FIGURES + [column.key for column in COLUMNS].index("rate")


@pytest.fixture
def table(qtbot: QtBot) -> QualityTableView:
    table = QualityTableView()
    qtbot.addWidget(table)
    table.resize(1000, 300)
    table.show_report(REPORT)
    table.show()
    return table


def names(table: QualityTableView) -> list[str]:
    model = table.facts
    return [str(model.index(i, NAME).data()) for i in range(model.rowCount())]


def test_the_nearest_to_the_original_comes_first_and_what_failed_last(table: QualityTableView) -> None:
    assert names(table) == ["original", "none, bfloat16", "int8", "AWQ", "nf4", "nf4, double", "int8, torchao"]
    model = table.facts
    assert [model.index(6, i).data() for i in range(FIGURES, model.columnCount())] == ["–"] * len(COLUMNS)
    assert model.index(6, NAME).data(Qt.ItemDataRole.ToolTipRole) == "Torchao is not installed"


def test_a_heading_sorts_by_its_best_first_and_the_other_way_round_when_asked_again(
    qtbot: QtBot, table: QualityTableView
) -> None:
    header = table.horizontalHeader()

    def click(column: int) -> None:
        at = QPoint(header.sectionViewportPosition(column) + 10, header.height() // 2)
        qtbot.mouseClick(header.viewport(), Qt.MouseButton.LeftButton, pos=at)

    click(RATE)
    assert names(table)[0] == "AWQ", "more tokens a second are better"
    assert "↓" in str(table.facts.headerData(RATE, Qt.Orientation.Horizontal))
    click(RATE)
    assert names(table)[0] == "int8"
    assert names(table)[-1] == "int8, torchao", "what has no figures is last both ways"
    click(NAME)
    assert names(table) == sorted(names(table), key=str.lower)


def test_the_keyboard_sorts_and_copies_and_keeps_the_row(qtbot: QtBot, table: QualityTableView) -> None:
    table.select(2)
    place = table.facts.order[table.currentIndex().row()]
    table.setCurrentIndex(table.facts.index(table.currentIndex().row(), RATE))
    qtbot.keyClick(table, Qt.Key.Key_Space)
    assert names(table)[0] == "AWQ"
    assert table.facts.order[table.currentIndex().row()] == place
    qtbot.keyClick(table, Qt.Key.Key_C, Qt.KeyboardModifier.ControlModifier)
    assert QGuiApplication.clipboard().text().startswith("quantization,dtype,perplexity")


def test_a_row_that_is_gone_to_is_told_by_its_place_in_the_report(qtbot: QtBot, table: QualityTableView) -> None:
    with qtbot.waitSignal(table.chosen) as told:
        qtbot.keyClick(table, Qt.Key.Key_Down)
    first = told.args[0]
    assert first == table.facts.order[table.currentIndex().row()]
    table.sort_by(RATE)
    table.select(4)
    assert names(table)[table.currentIndex().row()] == "AWQ"


def test_formulas_and_figures_are_said_to_those_who_cannot_see_them(table: QualityTableView) -> None:
    model = table.facts
    tip = str(model.headerData(DIVERGENCE, Qt.Orientation.Horizontal, Qt.ItemDataRole.ToolTipRole))
    assert "Σ p·ln(p ÷ q)" in tip
    assert "exp of the mean" in str(model.headerData(FIGURES, Qt.Orientation.Horizontal, Qt.ItemDataRole.ToolTipRole))
    said = Qt.ItemDataRole.AccessibleTextRole
    assert str(model.index(1, DIVERGENCE).data(said)) == "4.00e-05, best"
    assert str(model.index(3, FIGURES).data(said)) == "3.550 +4.0 %"
    assert "top-1 94.5 %" in str(model.index(3, NAME).data(said))


@pytest.mark.parametrize("dark", [True, False])
@pytest.mark.parametrize("zoom", [1.0, 2.0])
def test_all_rows_are_shown_at_any_zoom_and_the_best_are_stronger(qtbot: QtBot, zoom: float, dark: bool) -> None:
    theme.set_theme("dark" if dark else "light")
    theme.set_zoom(zoom)
    table = QualityTableView()
    qtbot.addWidget(table)
    table.resize(int(900 * zoom), 100)
    table.show_report(REPORT)
    table.show()
    table.select(1)
    image = table.grab().toImage()
    last = table.visualRect(table.facts.index(6, NAME))
    assert last.bottom() < table.viewport().height()
    assert table.columnWidth(RATE) >= table.sizeHintForColumn(RATE)
    bad = theme.current().bad
    box = table.visualRect(table.facts.index(6, NAME + 1)).translated(table.viewport().pos())
    pixels = (image.pixelColor(x, y) for x in range(box.left(), box.right()) for y in range(box.top(), box.bottom()))
    assert any(abs(p.hsvHue() - bad.hsvHue()) < 8 and p.hsvSaturation() > 90 for p in pixels), "why there is no figure"
