"""Attention: what the newest token of a request attended to, and those before it."""

from collections.abc import Sequence
from functools import partial

from app.inside.attention.history import AttentionHistory, Seen, Watched, half, visible, whole
from app.inside.attention.picture import EMPTY, NOBODY, NOT_YET, AttentionPicture, Focus
from app.inside.panel import InsightPanel
from app.language import tr
from app.playback.scope import ROUNDING, Scope
from app.ui.tables.facts import Facts
from engine.trace import Array, Record, bytes_text

COLUMNS = (*(tr("position"), tr("text"), tr("part"), tr("weight")), tr("of the highest"))


class AttentionPanel(InsightPanel):
    """The panel. It shows the selected request where that asked to be watched, else the one that told last."""

    def __init__(self, scope: Scope) -> None:
        super().__init__(scope, "attention", tr("Attention"))
        self.history = AttentionHistory()
        self.seen = Seen()
        self.picture: AttentionPicture = AttentionPicture()
        self.picture.sought.connect(scope.seek)
        self.picture.stepped.connect(scope.step_by)
        self.picture.chosen.connect(self._on_chosen)
        self.set_picture(self.picture)

    def take(self, records: Sequence[Record]) -> None:
        self.history.take(records)

    def adopt(self, known: AttentionHistory) -> bool:
        self.history = known
        return True

    def forget(self) -> None:
        self.history, self.seen = AttentionHistory(), Seen()

    def _on_chosen(self, seen: Seen) -> None:
        self.seen = seen
        self.stale()

    def _found(self) -> tuple[Watched | None, int]:
        """Whose token is shown, and which; -1 before the first."""
        moment = self.scope.now + ROUNDING  # records may be here whose steps the scope has not taken in yet
        sample = self.history.shown(self.scope.request, moment)
        return sample, sample.last_by(moment) if sample is not None else -1

    def draw(self) -> None:
        sample, token = self._found()
        history, header = self.history, self.history.header
        if sample is None or token < 0 or header is None:
            words = NOT_YET if history.watched else NOBODY if self.scope.begun else EMPTY
            self.picture.show_token(None, self.seen, words)
            self.summary.say("")
            return
        told = history.told(sample, token, self.scope.step_at)
        weights, gone = whole(told), told.forgotten
        lines = partial(self._lines, sample, token)
        card = header.model
        focus = Focus(sample, token, weights, gone, card.heads, card.attention_layers, lines)
        self.picture.show_token(focus, self.seen, "")
        given = self.seen.of(weights)
        seen = len(given) - len(gone)
        size = bytes_text(seen * card.kv_token_bytes)
        of = {"token": visible(sample.texts[token]), "request": sample.request, "n": seen, "few": half(given)}
        read = tr("“{token}” of request {request} reads K and V of {n:,} tokens ({size})", size=size, **of)
        share = tr("half of its attention is on {few:,}", **of)
        brief = tr("“{token}” attends to {n:,} tokens", **of)
        if gone:
            read = tr("{said}, {n:,} are forgotten", said=read, n=len(gone))
        chosen = f"{self.seen.words(card.attention_layers)} · " if self.seen.layer is not None else ""
        self.summary.say(f"{chosen}{read} · {share}", f"{chosen}{brief} · {share}", brief)

    def _lines(self, sample: Watched, token: int, most: int) -> tuple[list[int], Array]:
        return self.history.lines(sample, token, most, self.seen, self.scope.step_at)

    def facts(self) -> Facts:
        sample, token = self._found()
        if sample is None or token < 0 or self.history.header is None:
            return Facts(COLUMNS)
        told = self.history.told(sample, token, self.scope.step_at)
        given, gone = self.seen.of(whole(told)), told.forgotten
        most, prompt = max(float(given.max()), 1e-9), len(sample.prompt)
        each = zip(sample.context(token), given.tolist())
        parts = tr("prompt"), tr("answer"), tr("forgotten")
        return Facts(
            COLUMNS,
            [
                (at, visible(text), parts[2 if at in gone else at >= prompt], w, w / most)
                for at, (text, w) in enumerate(each)
            ],
        )
