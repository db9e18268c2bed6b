"""Text that is as high as it needs to be: prose, a table, or what was written as it stands."""

from collections.abc import Sequence

from markdown_it.token import Token
from PySide6.QtCore import QRectF, Qt, QUrl
from PySide6.QtGui import (
    QDesktopServices,
    QPainter,
    QPaintEvent,
    QResizeEvent,
    QTextBlock,
    QTextBlockFormat,
    QTextCursor,
    QWheelEvent,
)
from PySide6.QtWidgets import QSizePolicy, QTextBrowser

from app.chat.markdown import styles
from app.chat.markdown.writer import Writer
from app.ui.layout.boxes import named
from app.ui.look import theme

OPENED = ("http", "https", "mailto")
QUOTED = QTextBlockFormat.Property.BlockQuoteLevel


class ProseView(QTextBrowser):
    """What is settled stays; its tail is written anew as it grows. Links are opened by a click, and by nothing else."""

    def __init__(self, name: str, said: str) -> None:
        super().__init__()
        named(self, name, "prose", said=said)
        never = Qt.ScrollBarPolicy.ScrollBarAlwaysOff
        self.setHorizontalScrollBarPolicy(never)
        self.setVerticalScrollBarPolicy(never)
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        self.setFocusPolicy(Qt.FocusPolicy.ClickFocus)
        self.setUndoRedoEnabled(False)
        self.setOpenLinks(False)
        self.anchorClicked.connect(self._on_link)
        self.document().setDocumentMargin(0)
        self.document().documentLayout().documentSizeChanged.connect(self._fit)
        self._settled = 0  # characters of the document
        self._fresh = True  # nothing is settled

    def settle(self, tokens: Sequence[Token]) -> None:
        """One more block that stays; what was after the settled ones is gone."""
        self.show_tail(tokens)
        self._settled, self._fresh = self._end().position(), False

    def show_tail(self, tokens: Sequence[Token]) -> None:
        """What comes after the settled blocks, for now."""
        cursor = self._open_tail()
        Writer(cursor, fresh=self._fresh).write(tokens)
        cursor.endEditBlock()

    def drop_tail(self) -> bool:
        """Whether nothing is left."""
        self._open_tail().endEditBlock()
        return self._fresh

    def show_plain(self, text: str, *, mono: bool) -> None:
        """A text as it stands; of one that has grown only what is new is written."""
        cursor = self._end()
        known = self.toPlainText()
        cursor.beginEditBlock()
        if not text.startswith(known):
            cursor.select(QTextCursor.SelectionType.Document)
            cursor.removeSelectedText()
            known = ""
        if not known:
            cursor.setBlockFormat(styles.block_format(below=0))
        form = styles.code_format() if mono else styles.text_format()
        cursor.insertText(text[len(known) :], form)
        cursor.endEditBlock()

    def _end(self) -> QTextCursor:
        cursor = QTextCursor(self.document())
        cursor.movePosition(QTextCursor.MoveOperation.End)
        return cursor

    def _open_tail(self) -> QTextCursor:
        """At the end of what is settled, in an edit that is to be ended."""
        cursor = self._end()
        cursor.beginEditBlock()
        if cursor.position() > self._settled:
            cursor.setPosition(self._settled, QTextCursor.MoveMode.KeepAnchor)
            cursor.removeSelectedText()
        if self._fresh:
            cursor.setBlockFormat(QTextBlockFormat())
        return cursor

    def _on_link(self, url: QUrl) -> None:
        if url.scheme() in OPENED:
            QDesktopServices.openUrl(url)

    def loadResource(self, kind: int, name: QUrl | str) -> None:
        """Nothing is fetched."""

    def _fit(self) -> None:
        self.setFixedHeight(round(self.document().size().height()) + 1)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()

    def wheelEvent(self, event: QWheelEvent) -> None:
        event.ignore()  # the conversation scrolls

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        painter = QPainter(self.viewport())
        block = self.document().begin()
        while block.isValid():
            form = block.blockFormat()
            if form.intProperty(QUOTED) or form.intProperty(styles.RULE):
                self._mark(painter, block)
            block = block.next()
        painter.end()

    def _mark(self, painter: QPainter, block: QTextBlock) -> None:
        """The bars beside a quotation; the line that parts what is above and below."""
        box, form, color = (
            self.document().documentLayout().blockBoundingRect(block),
            block.blockFormat(),
            theme.current().edge,
        )
        if form.intProperty(styles.RULE):
            painter.fillRect(QRectF(0, round(box.center().y()), self.viewport().width(), 1), color)
        for i in range(form.intProperty(QUOTED)):
            goes_on = block.next().isValid() and block.next().blockFormat().intProperty(QUOTED) > i
            high = box.height() + (form.bottomMargin() if goes_on else 0)
            painter.fillRect(QRectF(theme.px(14) * i, box.top(), theme.px(3), high), color)
