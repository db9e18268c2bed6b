"""Markdown on the screen: what grows looks as what is whole, costs what is new, and does nothing by itself."""

from time import process_time

import pytest
from PySide6.QtCore import QUrl
from PySide6.QtGui import QColor, QDesktopServices, QGuiApplication, QTextBlock, QTextDocument
from pytestqt.qtbot import QtBot

from app.chat.markdown.body import MarkdownBody
from app.chat.markdown.code_view import CodeView
from app.chat.markdown.prose_view import ProseView
from app.ui.look import theme
from tests.app.chat.markdown.test_blocks import TEXT
from tests.app.contrast import contrast

BUDGET = 0.004  # seconds of CPU a frame


@pytest.fixture
def body(qtbot: QtBot) -> MarkdownBody:
    return made(qtbot)


def made(qtbot: QtBot) -> MarkdownBody:
    body = MarkdownBody("Answer")
    qtbot.addWidget(body)
    body.resize(700, 400)
    body.show()
    return body


def documents(body: MarkdownBody) -> list[str]:
    return [
        part.text.document().toHtml() if isinstance(part, CodeView) else part.document().toHtml()
        for part in body._parts
    ]


def test_a_text_that_grows_looks_as_the_whole_of_it(qtbot: QtBot, body: MarkdownBody) -> None:
    whole = made(qtbot)
    whole.show_text(TEXT)
    for end in range(1, len(TEXT), 3):
        body.show_text(TEXT[:end], whole=False)
    body.show_text(TEXT)
    assert documents(body) == documents(whole)
    assert [type(part) for part in body._parts] == [ProseView, CodeView, ProseView, ProseView, ProseView, CodeView,
                                                    ProseView, CodeView]  # fmt: skip


def test_a_frame_costs_what_is_new_however_long_the_text_is(body: MarkdownBody) -> None:
    long = TEXT.replace("~~~", "") * 120
    body.show_text(long, whole=False)
    costs = []
    for _ in range(60):
        long += " another word"
        begun = process_time()
        body.show_text(long, whole=False)
        costs.append(process_time() - begun)
    assert len(long) > 30_000
    assert sorted(costs)[int(0.9 * len(costs))] < BUDGET


def test_nothing_is_fetched_and_tags_are_text(body: MarkdownBody, tmp_path: object) -> None:
    body.show_text("<img src='file:///etc/passwd'> ![pic](http://nowhere.invalid/a.png) <b>no</b>")
    (part,) = body._parts
    assert isinstance(part, ProseView)
    assert part.toPlainText() == (
        "<img src='file:///etc/passwd'> [image: pic] (http://nowhere.invalid/a.png) <b>no</b>"
    )
    assert part.loadResource(QTextDocument.ResourceType.ImageResource.value, QUrl("file:///etc/passwd")) is None


def test_links_are_opened_by_a_click_and_only_those_of_the_web(
    body: MarkdownBody, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr(QDesktopServices, "openUrl", lambda url: opened.append(url.toString()))
    body.show_text("[a](https://example.org/x) [b](smb://host/x)")
    (part,) = body._parts
    assert isinstance(part, ProseView)
    part.anchorClicked.emit(QUrl("https://example.org/x"))
    part.anchorClicked.emit(QUrl("smb://host/x"))
    assert opened == ["https://example.org/x"]


def test_code_is_copied_without_its_fence(body: MarkdownBody) -> None:
    body.show_text(TEXT)
    code = next(part for part in body._parts if isinstance(part, CodeView))
    code.copy.click()
    assert QGuiApplication.clipboard().text() == "def fox():\n\n    return 1"
    assert code.language.text() == "python"


def test_it_can_be_read_as_it_was_written(body: MarkdownBody) -> None:
    body.show_text(TEXT[:80])
    body.set_raw(True)
    body.show_text(TEXT)
    (part,) = body._parts
    assert isinstance(part, ProseView)
    assert part.toPlainText() == TEXT
    body.set_raw(False)
    assert len(body._parts) == 8


def formats(block: QTextBlock) -> set[str]:
    found, part = set(), block.begin()
    while not part.atEnd():
        found.add(part.fragment().charFormat().foreground().color().name())
        part += 1
    return found


@pytest.mark.parametrize("name", ["dark", "light"])
def test_every_colour_can_be_read(qtbot: QtBot, name: str) -> None:
    theme.set_theme(name)
    body = made(qtbot)
    body.show_text(TEXT + "\n```python\nx = 'a'  # 1\ny = 2\nclass A: pass\n```\n[link](http://a.b) `c`")
    t = theme.current()
    for part in body._parts:
        document = part.text.document() if isinstance(part, CodeView) else part.document()
        block = document.begin()
        while block.isValid():
            for color in formats(block):
                assert contrast(QColor(color), t.field) >= 4.5, (color, block.text())
            block = block.next()
