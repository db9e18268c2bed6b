"""Writes Markdown's tokens into a document, in the theme's own fonts and colours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from markdown_it.token import Token
from PySide6.QtCore import Qt
from PySide6.QtGui import QTextBlockFormat, QTextCharFormat, QTextCursor, QTextListFormat, QTextTable, QTextTableFormat

from app.chat.markdown import styles
from app.chat.markdown.code import pieces
from app.language import tr
from app.ui.look import theme

Align = Qt.AlignmentFlag
LINE_SEPARATOR = "\N{LINE SEPARATOR}"
TASKS = {"[ ] ": "☐ ", "[x] ": "☑ ", "[X] ": "☑ "}
SIDES = {"text-align:center": Align.AlignHCenter, "text-align:right": Align.AlignRight}


class Writer:
    """Writes at a cursor, which stands at the end of its document; `fresh`: nothing is written there yet."""

    def __init__(self, cursor: QTextCursor, *, fresh: bool) -> None:
        self._cursor, self._fresh = cursor, fresh
        self._lists: list[QTextListFormat] = []
        self._quoted = 0
        self._item = False  # the next block is an item's first

    def write(self, tokens: Sequence[Token]) -> None:
        """One block with all that is in it."""
        rest = iter(tokens)
        for token in rest:
            match token.type:
                case "heading_open":
                    size = styles.HEADINGS.get(int(token.tag[1:]), styles.TEXT)
                    self._begin(above=0 if self._fresh else 12, below=6)
                    self._inline(next(rest), styles.text_format(size, 600))
                case "paragraph_open":
                    self._begin(below=4 if self._lists else styles.BETWEEN)
                    self._inline(next(rest), self._body())
                case "bullet_list_open" | "ordered_list_open":
                    self._lists.append(self._list(token))
                case "bullet_list_close" | "ordered_list_close":
                    self._lists.pop()
                case "list_item_open":
                    self._item = True
                    if token.info:
                        self._lists[-1].setStart(int(token.info))
                case "list_item_close":
                    if self._item:  # nothing is in it
                        self._begin(below=4)
                case "blockquote_open":
                    self._quoted += 1
                case "blockquote_close":
                    self._quoted -= 1
                case "hr":
                    self._block(styles.rule(), self._body())
                case "fence" | "code_block":
                    self._code(token)
                case "table_open":
                    self._table(rest)

    # -- blocks ---------------------------------------------------------------------------------------------------

    def _begin(self, *, above: float = 0, below: float = styles.BETWEEN) -> None:
        form = styles.block_format(len(self._lists), above=above, below=below, quoted=self._quoted)
        self._block(form, self._body())
        if self._item:
            self._item = False
            self._cursor.createList(QTextListFormat(self._lists[-1]))

    def _block(self, form: QTextBlockFormat, said: QTextCharFormat) -> None:
        """A new one, or the first where nothing is written yet."""
        if self._fresh:
            self._fresh = False
            self._cursor.setBlockFormat(form)
            self._cursor.setBlockCharFormat(said)
        else:
            self._cursor.insertBlock(form, said)

    def _body(self) -> QTextCharFormat:
        form = styles.text_format()
        return styles.quiet(form) if self._quoted else form

    def _list(self, token: Token) -> QTextListFormat:
        form = QTextListFormat()
        depth = len(self._lists)
        bullet = styles.BULLETS[min(depth, len(styles.BULLETS) - 1)]
        form.setStyle(QTextListFormat.Style.ListDecimal if token.tag == "ol" else bullet)
        form.setIndent(0)  # the block's margin does that, in pixels of the design
        return form

    def _code(self, token: Token) -> None:
        self._block(styles.code_block(len(self._lists)), styles.code_format())
        for text, ink in pieces(token.content.removesuffix("\n"), token.info.strip()):
            self._cursor.insertText(text.replace("\n", LINE_SEPARATOR), styles.code_format(ink))

    def _table(self, tokens: Iterator[Token]) -> None:
        rows: list[list[tuple[Token, str, bool]]] = []
        for token in tokens:
            match token.type:
                case "tr_open":
                    rows.append([])
                case "th_open" | "td_open":
                    rows[-1].append((next(tokens), str(token.attrGet("style") or ""), token.type == "th_open"))
                case "table_close":
                    break
        form = QTextTableFormat()
        form.setBorderCollapse(True)
        form.setBorder(1)
        form.setBorderStyle(QTextTableFormat.BorderStyle.BorderStyle_Solid)
        form.setBorderBrush(theme.over(theme.current().edge, theme.current().panel))
        form.setCellPadding(theme.px(5))
        form.setCellSpacing(0)
        form.setHeaderRowCount(1)
        table: QTextTable = self._cursor.insertTable(len(rows), max(map(len, rows)), form)
        for y, row in enumerate(rows):
            for x, (inline, style, head) in enumerate(row):
                cell = table.cellAt(y, x).firstCursorPosition()
                block = styles.block_format(below=0)
                block.setAlignment(SIDES.get(style, Align.AlignLeft))
                cell.setBlockFormat(block)
                outer, self._cursor = self._cursor, cell
                self._inline(inline, styles.text_format(13, 600 if head else 400))
                self._cursor = outer
        self._cursor.movePosition(QTextCursor.MoveOperation.End)

    # -- within a line --------------------------------------------------------------------------------------------

    def _inline(self, token: Token, form: QTextCharFormat) -> None:
        forms, insert = [form], self._cursor.insertText
        for at, part in enumerate(token.children or ()):
            now = forms[-1]
            match part.type:
                case "text":
                    text = part.content
                    if at == 0 and self._lists and text[:4] in TASKS:
                        text = TASKS[text[:4]] + text[4:]
                    insert(text, now)
                case "code_inline":
                    insert(part.content, styles.inline_code(now))
                case "softbreak":
                    insert(" ", now)
                case "hardbreak":
                    insert(LINE_SEPARATOR, now)
                case "image":  # nothing is fetched: what it shows, and where it would be, in words
                    insert(
                        tr("[image: {what}] ({where})", what=part.content, where=part.attrGet("src")), styles.quiet(now)
                    )
                case "strong_open":
                    forms.append(styles.strong(now))
                case "em_open":
                    forms.append(styles.slanted(now))
                case "s_open":
                    forms.append(styles.struck(now))
                case "link_open":
                    forms.append(styles.link(now, str(part.attrGet("href"))))
                case "strong_close" | "em_close" | "s_close" | "link_close":
                    forms.pop()
                case _:
                    insert(part.content, now)
