"""How Markdown looks: fonts and colours of the theme in force, as Qt's formats."""

from PySide6.QtGui import QFont, QTextBlockFormat, QTextCharFormat, QTextListFormat

from app.chat.markdown.code import Ink
from app.ui.look import theme

TEXT, CODE = 14.0, 12.5  # pixels of the design
HEADINGS = {1: 19.0, 2: 17.0, 3: 15.0}
LINE_HEIGHT, CODE_HEIGHT = 140.0, 130.0  # percent
BETWEEN = 8.0  # below a paragraph
BULLETS = QTextListFormat.Style.ListDisc, QTextListFormat.Style.ListCircle, QTextListFormat.Style.ListSquare
INDENT = 22.0  # of a level of lists
RULE = QTextBlockFormat.Property.UserProperty.value  # of a block across which a line is drawn
Proportional = QTextBlockFormat.LineHeightTypes.ProportionalHeight.value


def text_format(size: float = TEXT, weight: int = 400) -> QTextCharFormat:
    form = QTextCharFormat()
    form.setFont(theme.ui(size, weight))
    form.setForeground(theme.current().text)
    return form


def quiet(form: QTextCharFormat) -> QTextCharFormat:
    made = QTextCharFormat(form)
    made.setForeground(theme.current().secondary)
    return made


def strong(form: QTextCharFormat) -> QTextCharFormat:
    made = QTextCharFormat(form)
    made.setFontWeight(QFont.Weight.DemiBold)
    return made


def slanted(form: QTextCharFormat) -> QTextCharFormat:
    made = QTextCharFormat(form)
    made.setFontItalic(True)
    return made


def struck(form: QTextCharFormat) -> QTextCharFormat:
    made = QTextCharFormat(form)
    made.setFontStrikeOut(True)
    return made


def link(form: QTextCharFormat, address: str) -> QTextCharFormat:
    made = QTextCharFormat(form)
    made.setAnchor(True)
    made.setAnchorHref(address)
    made.setToolTip(address)
    made.setForeground(theme.current().accent)
    made.setFontUnderline(True)
    return made


def code_format(ink: Ink = Ink.PLAIN) -> QTextCharFormat:
    t = theme.current()
    form = QTextCharFormat()
    form.setFont(theme.mono(CODE, 600 if ink is Ink.NAME else 400))
    colors = {Ink.KEYWORD: t.accent, Ink.STRING: t.good, Ink.NUMBER: t.warn, Ink.COMMENT: t.secondary}
    form.setForeground(colors.get(ink, t.text))
    if ink is Ink.COMMENT:
        form.setFontItalic(True)
    return form


def inline_code(form: QTextCharFormat) -> QTextCharFormat:
    """Within a line, on a ground of its own."""
    made = QTextCharFormat(form)
    font = theme.mono(CODE)
    made.setFontFamilies(font.families())
    made.setFontFixedPitch(True)
    made.setFontPointSize(font.pointSizeF())
    made.setBackground(theme.current().field)
    return made


def block_format(level: int = 0, *, above: float = 0, below: float = BETWEEN, quoted: int = 0) -> QTextBlockFormat:
    """`level` of the lists that it is in, `quoted` of quotations."""
    form = QTextBlockFormat()
    form.setLineHeight(LINE_HEIGHT, Proportional)
    form.setTopMargin(theme.px(above))
    form.setBottomMargin(theme.px(below))
    form.setLeftMargin(theme.px(INDENT) * level + theme.px(14) * quoted)
    form.setProperty(QTextBlockFormat.Property.BlockQuoteLevel, quoted)
    return form


def rule() -> QTextBlockFormat:
    form = block_format()
    form.setProperty(RULE, 1)
    return form


def code_block(level: int = 0) -> QTextBlockFormat:
    """A line of code within prose, as in a list."""
    form = QTextBlockFormat()
    form.setLineHeight(CODE_HEIGHT, Proportional)
    form.setLeftMargin(theme.px(INDENT) * level)
    form.setBackground(theme.current().field)
    return form
