"""An answer as Markdown, or as it was written: a column of prose, tables and code that grows at its end."""

from __future__ import annotations

from typing import TypeVar

from PySide6.QtWidgets import QWidget

from app.chat.markdown.blocks import Block, GrowingText, Kind
from app.chat.markdown.code_view import CodeView
from app.chat.markdown.prose_view import ProseView
from app.ui.layout.boxes import column, discard, named

Part = ProseView | CodeView
P = TypeVar("P", ProseView, CodeView)


class MarkdownBody(QWidget):
    """`raw` shows the text as it was written. A frame costs what is new and the last block."""

    def __init__(self, said: str, *, raw: bool = False) -> None:
        super().__init__()
        named(self, "markdown_body", said=said)
        self._said, self.raw = said, raw
        self._column = column(spacing=8)
        self.setLayout(self._column)
        self.text = ""
        self._forget()

    def show_text(self, text: str, *, whole: bool = True) -> None:
        """`whole`: nothing more comes. A text that goes on where the one before ended costs what is new."""
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        if not text.startswith(self.text):
            self._forget()
        self.text = text
        if self.raw:
            self._part(Kind.PROSE).show_plain(text, mono=True)
            return
        settled, tail = self._growing.grow(text)
        if self._tail is not None and (settled or tail is None or tail.kind is not self._kinds[-1]):
            self._drop_tail()
        for block in settled:
            self._show(block, settled=True)
        if tail is not None:
            self._show(tail, settled=False, whole=whole)

    def set_raw(self, raw: bool) -> None:
        """As it was written, or as Markdown."""
        if raw != self.raw:
            self.raw = raw
            self.restyle()

    def restyle(self) -> None:
        """Everything anew, in the theme's fonts and colours as they are now."""
        text = self.text
        self._forget()
        self.show_text(text)

    # -- inside ---------------------------------------------------------------------------------------------------

    def _forget(self) -> None:
        discard(self._column, *self.findChildren(ProseView), *self.findChildren(CodeView))
        self._parts: list[Part] = []
        self._kinds: list[Kind] = []
        self._tail: Part | None = None  # holds what is not settled
        self._growing = GrowingText()
        self.text = ""

    def _show(self, block: Block, *, settled: bool, whole: bool = True) -> None:
        if block.kind is Kind.CODE:
            code = self._code_part()
            code.show_code(block.code, block.language, whole=settled or whole)
            self._tail = None if settled else code
            return
        prose = self._part(block.kind)
        if settled:
            prose.settle(block.tokens)
        else:
            prose.show_tail(block.tokens)
        self._tail = None if settled else prose

    def _part(self, kind: Kind) -> ProseView:
        """Where prose goes on, or a new one: a table stands alone."""
        last = self._parts[-1] if self._parts else None
        goes_on = last is self._tail or kind is Kind.PROSE
        if isinstance(last, ProseView) and self._kinds[-1] is kind and goes_on:
            return last
        return self._add(ProseView("prose_view", self._said), kind)

    def _code_part(self) -> CodeView:
        """The one that grows, or a new one."""
        if isinstance(self._tail, CodeView):
            return self._tail
        return self._add(CodeView(), Kind.CODE)

    def _add(self, part: P, kind: Kind) -> P:
        self._parts.append(part)
        self._kinds.append(kind)
        self._column.addWidget(part)
        return part

    def _drop_tail(self) -> None:
        """What was not settled is written anew, as something else perhaps."""
        tail, self._tail = self._tail, None
        if tail is not None and (isinstance(tail, CodeView) or tail.drop_tail()):
            discard(self._column, tail)
            self._parts.pop()
            self._kinds.pop()
