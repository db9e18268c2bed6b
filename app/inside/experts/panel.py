"""Experts: which of a mixture's experts each step activates, and how evenly the run asks them."""

from collections.abc import Sequence

import numpy as np

from app.inside.experts.history import ExpertHistory
from app.inside.experts.picture import DENSE, EMPTY, NOT_YET, ExpertPicture, Sent
from app.inside.panel import COMING, InsightPanel
from app.language import tr
from app.playback.scope import Scope
from app.ui.tables.facts import Facts
from engine.trace import Record, imbalance, rank_loads

COLUMNS = (*(tr("layer"), tr("expert"), tr("tokens of the step"), tr("tokens until here"), tr("share of the layer")),)


class ExpertsPanel(InsightPanel):
    """The panel. Layers and experts are counted from 1, as ranks' layers are."""

    def __init__(self, scope: Scope) -> None:
        super().__init__(scope, "experts", tr("Experts"))
        self.history = ExpertHistory()
        self.picture: ExpertPicture = ExpertPicture()
        self.picture.sought.connect(scope.seek)
        self.picture.stepped.connect(scope.step_by)
        self.set_picture(self.picture)

    def take(self, records: Sequence[Record]) -> None:
        self.history.take(records)

    def adopt(self, known: ExpertHistory) -> bool:
        self.history = known
        return True

    def forget(self) -> None:
        self.history = ExpertHistory()

    @property
    def _place(self) -> int:
        return self.step_shown(len(self.history))

    def _sent(self, place: int) -> Sent:
        step_at = self.scope.step_at
        return Sent(self.history.sent(step_at(place)), self.history.sent_until(place, step_at))

    def draw(self) -> None:
        history, place = self.history, self._place
        if not history.layers or place < 0:
            words = NOT_YET if len(history) else COMING if self.scope.begun else EMPTY
            self.picture.show_step(history, -1, None, DENSE if history.header and not history.layers else words)
            self.summary.say("")
            return
        sent = self._sent(place)
        self.picture.show_step(history, place, sent, "")
        activated, whole = int(np.count_nonzero(sent.step)), sent.step.size
        share = f"{100 * activated / whole:.0f} %"
        told = {"n": activated, "all": whole, "share": share}
        read = tr("{n:,} of {all:,} experts activated · {share} of their weights read", **told)
        uneven = self._uneven(sent)
        self.summary.say(
            *([f"{read} · {uneven}"] if uneven else []),
            read,
            tr("{n:,} of {all:,} experts activated", **told),
            tr("{n:,} of {all:,} experts", **told),
        )

    def _uneven(self, sent: Sent) -> str:
        """Where ranks share the experts out: how far the busiest is from an even share; each layer waits for it."""
        history = self.history
        if not history.ranks or history.header is None:
            return ""
        factor = imbalance(rank_loads(history.header, sent.step))
        return tr("busiest rank of each layer × {factor:.2f} of an even share", factor=factor)

    def facts(self) -> Facts:
        history, place = self.history, self._place
        if not history.layers or place < 0:
            return Facts(COLUMNS)
        sent = self._sent(place)
        shares = sent.run / sent.run.sum(1, keepdims=True).clip(1)
        each = zip(history.layers, sent.step.tolist(), sent.run.tolist(), shares.tolist())
        return Facts(
            COLUMNS,
            [
                (layer + 1, expert + 1, *values)
                for layer, *columns in each
                for expert, values in enumerate(zip(*columns))
            ],
        )
