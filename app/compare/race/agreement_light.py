"""A light that says whether every lane gave the same tokens; a click tells where not."""

from collections.abc import Sequence

from PySide6.QtCore import QPointF, Qt
from PySide6.QtGui import QPainter, QPaintEvent, QPen, QPolygonF
from PySide6.QtWidgets import QLabel, QPushButton, QWidget

from app.language import tr
from app.ui.labels import Heading, label
from app.ui.layout.boxes import Scrolled, column, named
from app.ui.look import theme
from app.ui.sheets.popover import Popover
from engine.compare import NEAR_TIE, Agreement, Parting, Verdict

MOST_LINES = 60
WORST = (Verdict.DIFFERS, Verdict.NEAR_TIE, Verdict.SAME)


def light_words(agreements: Sequence[Agreement | None]) -> str:
    """ "same tokens in every lane", "near-tie in 2 of 64, 3.1e-05 nats apart", "tokens differ in 5 of 64"."""
    told = [a for a in agreements if a is not None and a.compared]
    verdict = worst(agreements)
    if verdict is None:
        if any(agreements):
            return tr("no prompt in common: no tokens to compare")
        if len(agreements) > 1:
            return tr("tokens known of one lane alone")
        return tr("one lane: no tokens to compare")
    if verdict is Verdict.SAME:
        if len(told) + 1 == len(agreements):
            return tr("same tokens in every lane")
        return tr("same tokens in {n} of {all} lanes", n=len(told) + 1, all=len(agreements))
    partings = [p for a in told for p in a.partings if p.verdict is verdict]
    count, all_told = len({(p.arrival, p.sample) for p in partings}), max(a.compared for a in told)
    if verdict is Verdict.NEAR_TIE:
        margin = max(p.margin or 0.0 for p in partings)
        return tr("near-tie in {n:,} of {all:,}, {margin:.0e} nats apart", n=count, all=all_told, margin=margin)
    return tr("tokens differ in {n:,} of {all:,}", n=count, all=all_told)


def worst(agreements: Sequence[Agreement | None]) -> Verdict | None:
    """The worst verdict of all lanes; None where there is nothing to compare."""
    verdicts = {a.verdict for a in agreements if a is not None and a.compared}
    return next((v for v in WORST if v in verdicts), None)


def parting_words(parting: Parting) -> str:
    """ "prompt 3, token 41:  ' owl' instead of ' fox'  ·  2.1e-05 nats apart"."""
    ours, theirs = (
        tr("its end") if token is None else repr(text) if text else tr("token {id}", id=token)
        for token, text in zip(parting.tokens, parting.texts, strict=True)
    )
    prompt, sample, token = parting.arrival + 1, parting.sample + 1, parting.position + 1
    if parting.sample:
        place = tr("prompt {prompt}, sample {sample}, token {token}", prompt=prompt, sample=sample, token=token)
    else:
        place = tr("prompt {prompt}, token {token}", prompt=prompt, token=token)
    words = tr("{place}:  {theirs} instead of {ours}", place=place, theirs=theirs, ours=ours)
    if parting.margin is None:
        return words
    margin = f"{'' if parting.exact else '~'}{parting.margin:.1e}"
    return "  ·  ".join((words, tr("{margin} nats apart", margin=margin)))


class AgreementLight(QPushButton):
    """Green and round: the same; amber and three-cornered: near-ties; red and crossed: they differ, grey where their
    weights do."""

    def __init__(self) -> None:
        super().__init__()
        tip = tr("The first token in which each request differs from the first lane")
        named(self, "agreement_light", "light", tip=tip)
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self._names: Sequence[str] = ()
        self._agreements: Sequence[Agreement | None] = ()
        self._verdict: Verdict | None = None
        self._expected = False
        self._sheet: Popover | None = None
        self.clicked.connect(self._on_clicked)
        self.set_agreements((), ())

    def set_agreements(
        self, names: Sequence[str], agreements: Sequence[Agreement | None], other_weights: Sequence[bool] = ()
    ) -> None:
        """Each lane against the first. `other_weights` says of which lanes other tokens are no fault: they are told
        where all others agree, and quietly."""
        self._names, self._agreements = names, agreements
        others = other_weights or [False] * len(agreements)
        strict = [a for a, other in zip(agreements, others, strict=True) if not other]
        self._verdict = worst(agreements)
        self._expected = self._verdict is not None and worst(strict) in (None, Verdict.SAME) and any(others)
        words = light_words(agreements)
        if self._expected and self._verdict is not Verdict.SAME:
            words = tr("{verdict}, from other weights", verdict=words)
        self.setText("      " + words)
        self.setAccessibleName(words)
        self.setVisible(bool(agreements))
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        t, r = theme.current(), theme.px(4)
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        c = QPointF(theme.px(10), self.height() / 2)
        painter.setPen(Qt.PenStyle.NoPen)
        match self._verdict:
            case Verdict.SAME:
                painter.setBrush(t.good)
                painter.drawEllipse(c, r, r)
            case Verdict.NEAR_TIE:
                painter.setBrush(t.warn)
                corners = [c + QPointF(-1.15 * r, r), c + QPointF(1.15 * r, r), c + QPointF(0, -1.1 * r)]
                painter.drawPolygon(QPolygonF(corners))
            case Verdict.DIFFERS:
                painter.setPen(QPen(t.secondary if self._expected else t.bad, theme.px(2)))
                painter.drawLine(c + QPointF(-r, -r), c + QPointF(r, r))
                painter.drawLine(c + QPointF(-r, r), c + QPointF(r, -r))
            case _:
                painter.setBrush(t.edge)
                painter.drawEllipse(c, r, r)
        painter.end()

    def lines(self) -> list[tuple[str, list[str]]]:
        """Each lane's name with a line for every request that differs."""
        told = zip(self._names, self._agreements, strict=True)
        return [(name, [parting_words(p) for p in a.partings]) for name, a in told if a is not None]

    def _on_clicked(self) -> None:
        if self._sheet is not None:
            self._sheet.deleteLater()
        sheet = self._sheet = Popover(self, "agreement_sheet", tr("Where tokens differ"), width=520)
        lines: list[QWidget] = []
        for name, partings in self.lines():
            lines.append(Heading(tr("{lane} against {first}", lane=name, first=self._names[0])))
            lines += map(_selectable, partings[:MOST_LINES] or [tr("same tokens in every request")])
            if len(partings) > MOST_LINES:
                lines.append(label(tr("and {count:,} more", count=len(partings) - MOST_LINES), "note"))
        scroll = Scrolled(column(*lines, None, spacing=4))
        scroll.setFixedHeight(min(theme.px(320), scroll.sheet.sizeHint().height() + theme.px(4)))
        sheet.column.addWidget(scroll)
        note = label(
            tr(
                "A near-tie: the two tokens' probabilities were less than {nats:g} nats apart, so that the order of "
                "additions decides which comes first.",
                nats=NEAR_TIE,
            ),
            "note",
        )
        note.setWordWrap(True)
        sheet.column.addWidget(note)
        sheet.open_below(self)


def _selectable(text: str) -> QLabel:
    line = label(text, "note")
    line.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
    return line
