"""The KV map: every block of the pool and who owns it, at the scope's moment; strips where the cache is contiguous."""

from collections.abc import Sequence

from PySide6.QtCore import QRect, Qt
from PySide6.QtGui import QAction, QResizeEvent
from PySide6.QtWidgets import QBoxLayout, QLabel, QSizePolicy, QStackedWidget, QVBoxLayout

from app import storage
from app.inside.kv_map.block_table import WIDTH, KvBlockTable
from app.inside.kv_map.contiguous import KvStrips, strip_words
from app.inside.kv_map.grid import KvGrid
from app.inside.kv_map.history import KvHistory
from app.inside.kv_map.host_strip import HostStrip
from app.inside.kv_map.legend import KvLegend
from app.inside.kv_map.pixels import front_of
from app.inside.kv_map.state import CACHED, FREE, KvState
from app.inside.kv_map.state_strip import StateStrip
from app.inside.kv_map.words import (
    ALL_FREE,
    COLUMNS,
    EMPTY,
    HINT,
    NO_CACHE,
    REST,
    SHORT_HINTS,
    BlockRows,
    block_facts,
    block_words,
    content_words,
    kinds_words,
    rest_words,
    short_summary_words,
    summary_words,
)
from app.inside.look import Look
from app.inside.panel import InsightPanel
from app.language import tr, trn
from app.playback.scope import Scope
from app.ui.controls import button
from app.ui.look import theme
from app.ui.painted import EmptyWords, Painted
from app.ui.tables.facts import Facts
from engine.trace import Record

WIDE = 520  # pixels from which on the block table stands beside the map
TALL = 260  # from which on there is room for three lines below it
WHOLE = "kv_map/whole_pool"


class KvPicture(Painted):
    """The map, the block table beside or below it, a line of words and the legend."""

    hint, least = (360, 320), (160, 120)

    def __init__(self) -> None:
        super().__init__("kv_picture")
        self.grid, self.strips, self.table, self.legend = KvGrid(), KvStrips(), KvBlockTable(), KvLegend()
        self.host, self.states = HostStrip(), StateStrip()
        self.nothing = EmptyWords("kv_empty")
        self.rest = button("kv_rest", role="quiet", tip=REST)
        self.words = _wrapped("kv_words", "note")
        self.words.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self._said, self._shorter = "", tuple[str, ...]()
        self.still = False  # nobody points at it: no room is kept for words that come and go
        self.words.setAlignment(Qt.AlignmentFlag.AlignTop)
        self.maps = QStackedWidget()
        for each in (self.nothing, self.grid, self.strips):
            self.maps.addWidget(each)
        self.body = QBoxLayout(QBoxLayout.Direction.LeftToRight)
        self.body.addWidget(self.maps, 1)
        self.body.addWidget(self.table)
        self.table.hide()
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.addLayout(self.body, 1)
        column.addWidget(self.rest, 0, Qt.AlignmentFlag.AlignLeft)
        for strip in (self.states, self.host):
            column.addWidget(strip)
            strip.hide()
        column.addWidget(self.words)
        self.rest.hide()
        column.addWidget(self.legend)
        self._column = column
        self.restyle()

    def restyle(self) -> None:
        super().restyle()
        self.body.setSpacing(theme.px(16))
        self._column.setSpacing(theme.px(8))
        self._arrange()

    def say(self, words: str, *shorter: str) -> None:
        """The lines below the map, or the first of the `shorter` wordings that there is room for; they keep their room,
        so that no cell moves when they change."""
        self._said, self._shorter = words, shorter
        self._fit()

    def _fit(self) -> None:
        """As many words as the lines hold; all of them are in the tip."""
        label, words = self.words, self._said
        lines = 3 if self.height() >= theme.px(TALL) and not theme.presenting() else 1
        label.ensurePolished()
        label.setVisible(bool(words) or not (theme.presenting() or self.still))
        room = lines * label.fontMetrics().lineSpacing() + 2
        label.setFixedHeight(room)
        flags = int(Qt.TextFlag.TextWordWrap.value)
        area = QRect(0, 0, max(1, self.width()), 10_000)

        def fits(text: str) -> bool:
            return label.fontMetrics().boundingRect(area, flags, text).height() <= room

        wordings = words, *self._shorter
        words = next(filter(fits, wordings), wordings[-1])
        if not fits(words):
            low, high = 0, len(words)
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if fits(words[:middle] + "…") else (low, middle)
            words = words[:low].rstrip(" ·,") + "…"
        if label.text() != words:
            label.setText(words)
            label.setAccessibleName(self._said)
        label.setToolTip(self._said if words != self._said else "")

    def resizeEvent(self, event: QResizeEvent) -> None:
        self._arrange()
        self._fit()

    def _arrange(self) -> None:
        wide, table = self.width() >= theme.px(WIDE), theme.px(WIDTH)
        self.body.setDirection(QBoxLayout.Direction.LeftToRight if wide else QBoxLayout.Direction.TopToBottom)
        self.table.setMinimumWidth(table if wide else 0)
        self.table.setMaximumWidth(table if wide else 16_777_215)
        self.table.setMaximumHeight(16_777_215 if wide else max(theme.px(110), self.height() // 3))


class KvMap(InsightPanel):
    """Follows the scope; its own are only the block cursor and the keyframes."""

    def __init__(self, scope: Scope) -> None:
        super().__init__(scope, "kv_map", tr("KV map"))
        self.history = KvHistory()
        self._shown: int | None = None  # the place of the step that was drawn last
        self._state: KvState | None = None
        self.view = KvPicture()
        self.set_picture(self.view)
        whole = str(storage.settings().value(WHOLE, "false")) == "true"
        self.whole_pool = QAction(tr("Whole pool"), self.menu, checkable=True, checked=whole)
        self.whole_pool.toggled.connect(self._on_whole)
        first = self.menu.actions()[0]
        self.menu.insertAction(first, self.whole_pool)
        self.menu.insertSeparator(first)
        self.view.rest.clicked.connect(self.whole_pool.toggle)
        self.view.grid.block_chosen.connect(self.stale)
        self.view.grid.owner_asked.connect(self._on_owner)
        self.view.table.block_chosen.connect(self.view.grid.point_at)
        self.view.table.block_chosen.connect(self.stale)
        self.view.strips.strip_chosen.connect(scope.select)

    def pose(self, look: Look) -> None:
        super().pose(look)
        self.view.still = True

    def take(self, records: Sequence[Record]) -> None:
        self.history.take(records)

    def adopt(self, known: KvHistory) -> bool:
        self.history = known
        return True

    def forget(self) -> None:
        self.history = KvHistory()
        self._shown, self._state = None, None
        self.view.grid.show_state(None, -1, -1, 0)
        self.view.grid.point_at(-1)
        self.view.strips.show_state(None, -1)

    def state(self) -> KvState | None:
        """The pool at the scope's moment, as far as the records have been taken; None before the header."""
        if self.history.tip is None:
            return None
        known = self.history.steps
        place = known - 1 if self.scope.following else self.step_shown(known)
        return self.history.at(place, self.scope.trace.records)

    def draw(self) -> None:
        state = self._state = self.state()
        view, header = self.view, self.history.header
        if state is None or header is None or header.config.mode == "recompute":
            view.nothing.say(EMPTY if state is None else NO_CACHE)
            view.maps.setCurrentWidget(view.nothing)
            self.summary.say("" if state is None else tr("no KV cache"))
            view.legend.hide()
            view.host.hide()
            view.states.hide()
            view.rest.hide()
            view.table.hide()
            view.say("")
            return
        view.legend.show()
        view.legend.show_strips(state.padded)
        view.host.setVisible(state.hosts > 0)
        view.host.show_state(state)
        view.states.setVisible(state.state_slots > 0)
        view.states.show_state(state, self.scope.request)
        if state.padded:
            self._draw_strips(state)
        else:
            self._draw_blocks(state)
        self._shown = state.at

    def _draw_blocks(self, state: KvState) -> None:
        view, grid, selected = self.view, self.view.grid, self.scope.request
        view.maps.setCurrentWidget(grid)
        summary = summary_words(state)
        self.summary.say(summary, *short_summary_words(state))
        before = state.at if self._shown is None else self._shown
        front = self._front(state)
        shown = state.blocks if self.whole_pool.isChecked() else front
        grid.show_state(state, selected, before, shown)
        view.rest.setText(rest_words(shown, front, state.blocks))
        view.rest.setVisible(front < state.blocks and not (self.posed or theme.presenting()))
        holds = selected >= 0 and bool(state.samples(selected))
        if holds:
            view.table.show_state(state, selected, grid.pointed)
        view.table.setVisible(holds)
        hints = ALL_FREE if self.history.reach and (state.owner == FREE).all() else (HINT, *SHORT_HINTS)
        words, *shorter = ("",) if theme.presenting() or self.posed else hints
        if grid.pointed >= 0:
            words, shorter = block_words(state, grid.pointed, self._seconds, self._content(state, grid.pointed)), []
        elif selected >= 0 and not holds:
            words = tr("#{request} holds no blocks at this moment.", request=selected)
            shorter = [tr("#{request} holds no blocks.", request=selected)]
        view.say(words, *shorter)
        how = tr("Arrow keys move from block to block, Enter selects its owner.")
        grid.setAccessibleDescription(f"{summary}. {how}" if words in (HINT, ALL_FREE[0]) else words)

    def _front(self, state: KvState) -> int:
        """How many blocks show all there is to see; beside other lanes the whole pool, so that they compare."""
        return front_of(self.history.reach, state.blocks) if self.shared is None else state.blocks

    def _draw_strips(self, state: KvState) -> None:
        view, strips, selected = self.view, self.view.strips, self.scope.request
        view.maps.setCurrentWidget(strips)
        view.table.hide()
        view.rest.hide()
        strips.show_state(state, selected)
        owned = int((state.references > 0).sum())
        held = trn("{count:,} strip", "{count:,} strips", len(strips.strips))
        self.summary.say(" · ".join((held, tr("{n:,} of {all:,} blocks", n=owned, all=state.blocks))))
        external = self.scope.step_at(state.at).kv_external if 0 <= state.at < self.scope.steps else 0
        words = [kinds_words(state.kinds(), external, state.blocks * state.size)]
        words += [strip_words(strip) for strip in strips.strips if strip.request == selected]
        view.say("\n".join(words))

    def _seconds(self, place: int) -> float:
        """When the step of this place ended, as panels show times."""
        place = min(place, self.scope.steps - 1)
        return float(self.scope.step_ends[place]) - self.scope.origin if place >= 0 else 0.0

    def _content(self, state: KvState, block: int) -> str:
        if state.writer[block] < 0:
            return ""
        return content_words(state, block, self.scope.trace.records, self.history.position(state.at))

    def facts(self) -> Facts:
        state = self.state()
        return block_facts(state, self._seconds) if state is not None else Facts(COLUMNS)

    def row_chosen(self, row: int) -> None:
        rows = self.table.facts_model.facts.rows
        if isinstance(rows, BlockRows) and row < len(rows):
            self.view.grid.point_at(rows.blocks[row])
            self._on_owner(rows.blocks[row])

    # -- the person -----------------------------------------------------------------------------------------------

    def _on_whole(self, whole: bool) -> None:
        storage.settings().setValue(WHOLE, "true" if whole else "false")
        self.stale()

    def _on_owner(self, block: int) -> None:
        """Selects a block's owner; nobody where it is free."""
        if self._state is None:
            return
        owner = int(self._state.owner[block]) if block >= 0 else FREE
        if owner != CACHED and not self._shares(block):
            self.scope.select(owner if owner != FREE else -1)
        self.stale()

    def _shares(self, block: int) -> bool:
        """Whether the selected request is among the owners already."""
        return self._state is not None and any(r == self.scope.request for r, _ in self._state.owners(block))


def _wrapped(name: str, role: str) -> QLabel:
    result = QLabel(textFormat=Qt.TextFormat.PlainText, wordWrap=True)
    result.setObjectName(name)
    result.setProperty("role", role)
    result.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Minimum)
    return result
