"""What a step was made of, on one sheet: the time bar, the forward pass taken apart, refusals, blocks."""

from PySide6.QtCore import QPointF, QRect, QRectF, Signal
from PySide6.QtGui import QMouseEvent, QPainter

from app.inside.step.block_accounts import Account, account_words, block_words, totals_words
from app.inside.step.figure import StepFigure
from app.inside.step.kernel_bars import KernelBars
from app.inside.step.prose import Paragraph, ParagraphLayout, Tone, draw, lay_out
from app.inside.step.story import StepStory
from app.inside.step.times import figure_words
from app.language import tr, trn
from app.ui.look import theme
from app.ui.look.font_face import Face
from app.ui.painted import Painted

OWNERS = 8  # requests whose blocks are told before the rest is only counted
PREEMPTED = 6
PREEMPTION = tr("it had joined last, and blocks or places ran out. It waits, and is computed again.")
PREEMPTION_TIP = tr("preemption by recompute: its blocks went to others; its tokens are kept")
OFFLOAD_TIP = tr("offloading: what the prefix cache forgets is copied to host memory first, and back when asked for")
SWAP_TIP = tr("preemption by swap: its blocks were copied out before others got them, and come back before it goes on")
BESIDE, GAP = 700, 20  # from this width on, refusals and blocks are beside the figure


class StepSheet(Painted):
    """`fit` says how high it is at a width. A click on a stripe, a lane or a paragraph chooses its request."""

    request_chosen = Signal(int)
    sharp = True
    head, face = Face(11, 600, spaced=True), Face(12)

    def __init__(self) -> None:
        super().__init__("step_sheet", tr("Where the step's time went, who was refused, and what became of blocks"))
        self._story: StepStory | None = None
        self._size_line = False
        self._selected = -1
        self._figure, self._kernels = StepFigure(), KernelBars()

    def show_story(self, story: StepStory | None, selected: int, size_line: bool) -> None:
        """Another step, or another selection. `size_line`: says the step's rows and tokens here, as the head has no
        room for them. `fit` must follow."""
        self._story, self._selected, self._size_line = story, selected, size_line
        if story is not None:
            self.setAccessibleDescription(" ".join(p.text for _, section in self._sections(story) for p in section))
        self.update()

    def fit(self, width: int, room: int | None) -> int:
        """Lays everything out for a width; returns the height. What `room` there is beyond the least goes to the
        figure; without much, its caption is brief. None: as high as it likes."""
        if self._story is None:
            return 0
        if room is None:
            return round(self._lay(self._story, width, theme.px(80)))
        spare = room - self._lay(self._story, width, 0.0)
        return round(self._lay(self._story, width, max(0.0, spare), brief=spare < 0))

    def _lay(self, story: StepStory, width: int, spare: float, brief: bool = False) -> float:
        self._laid: list[ParagraphLayout] = []
        self._heads: list[tuple[float, float, str]] = []
        px, y = theme.px, 0.0
        beside = width >= px(BESIDE)
        own = (width - px(GAP)) * 0.52 if beside else float(width)
        if self._size_line:
            y = self._add(Paragraph(((story.size_words, Tone.QUIET),)), 0.0, y, own) + px(6)
        y += self._figure.lay(story, 0.0, y, own, spare) + px(4)
        caption, short = figure_words(story.times, story.step)
        y = self._add(Paragraph(((short if brief else caption, Tone.QUIET),), -1, caption), 0.0, y, own)
        y = self._lay_kernels(story, y + px(8), own)
        left, wide = (own + px(GAP), width - own - px(GAP)) if beside else (0.0, float(width))
        foot, y = y, 0.0 if beside else y
        for title, paragraphs in self._sections(story):
            self._heads.append((left, y + self.head.ascent, title))
            y += round(self.head.height) + px(3)
            for paragraph in paragraphs:
                y = self._add(paragraph, left, y, wide) + px(1)
            y += px(10)
        return max(foot, y - px(6))

    def _lay_kernels(self, story: StepStory, y: float, width: float) -> float:
        """Those of a step that was replayed on a CPU, where they were told; returns where they end."""
        lines = [] if theme.presenting() else story.kernels.shown
        if lines:
            self._heads.append((0.0, y + self.head.ascent, tr("KERNELS")))
            y += round(self.head.height) + theme.px(3)
        return y + self._kernels.lay(lines, 0.0, y, width) + (theme.px(10) if lines else 0)

    def _add(self, paragraph: Paragraph, left: float, y: float, width: float) -> float:
        laid = lay_out(paragraph, self.face, left, y, width)
        self._laid.append(laid)
        return laid.box.bottom()

    # -- words ----------------------------------------------------------------------------------------------------

    def _sections(self, story: StepStory) -> list[tuple[str, list[Paragraph]]]:
        if theme.presenting():
            return []
        ranks = [Paragraph(((words, tone),)) for words, tone in _ranks(story)]
        own = [(tr("RANKS"), ranks)] if ranks else []
        return [
            *own,
            (tr("REFUSED"), self._refusals(story)),
            (tr("BLOCKS"), [*self._prefixes(story), *self._blocks(story)]),
        ]

    def _refusals(self, story: StepStory) -> list[Paragraph]:
        found = []
        for request, words in story.refused:
            first = tr("#{request:,} is first in the queue: {why}.", request=request, why=words.why)
            parts = [(first, Tone.STRONG)]
            if words.remedy:
                parts.append((f"{words.remedy[:1].upper()}{words.remedy[1:]}.", Tone.QUIET))
            tip = tr(
                "{count:,} wait after this step; the queue is served in order, so none passes its first",
                count=story.step.waiting,
            )
            found.append(Paragraph(tuple(parts), request, tip))
        if not found:
            found.append(Paragraph(((story.quiet_words, Tone.QUIET),)))
        for request, branch in story.preempted[:PREEMPTED]:
            told = (tr("{request} was preempted:", request=story.name(request, branch)), Tone.WARN)
            blocks = story.swapped_out.get((request, branch), 0)
            swapped = tr(
                "it had joined last, and blocks or places ran out. It waits, {count:,} of its blocks in host memory.",
                count=blocks,
            )
            why, tip = (swapped, SWAP_TIP) if blocks else (PREEMPTION, PREEMPTION_TIP)
            found.append(Paragraph((told, (why, Tone.QUIET)), request, tip))
        if len(story.preempted) > PREEMPTED:
            more = tr("{count:,} more were preempted.", count=len(story.preempted) - PREEMPTED)
            found.append(Paragraph(((more, Tone.WARN),)))
        for (request, branch), blocks in list(story.swapped_in.items())[:PREEMPTED]:
            told = (tr("{request} came back:", request=story.name(request, branch)), Tone.STRONG)
            back = trn(
                "{count:,} block from host memory, and nothing of them is computed again.",
                "{count:,} blocks from host memory, and nothing of them is computed again.",
                blocks,
            )
            found.append(Paragraph((told, (back, Tone.QUIET)), request, SWAP_TIP))
        return found

    def _prefixes(self, story: StepStory) -> list[Paragraph]:
        """Those that came back from host memory, and that went there."""
        found = []
        for (request, branch), blocks in list(story.found_below.items())[:PREEMPTED]:
            words = trn(
                "{request} found {count:,} block in host memory that the pool had forgotten.",
                "{request} found {count:,} blocks in host memory that the pool had forgotten.",
                blocks,
                request=story.name(request, branch),
            )
            found.append(Paragraph(((words, Tone.STRONG),), request, OFFLOAD_TIP))
        if story.offloaded:
            kept = trn(
                "{count:,} cached block made room, and is kept in host memory.",
                "{count:,} cached blocks made room, and are kept in host memory.",
                story.offloaded,
            )
            found.append(Paragraph(((kept, Tone.QUIET),), -1, OFFLOAD_TIP))
        return found

    def _blocks(self, story: StepStory) -> list[Paragraph]:
        if not story.accounts:
            return [Paragraph(((tr("No block changed hands."), Tone.QUIET),))]
        owners: dict[tuple[int, int], list[Account]] = {}
        for account in story.accounts:
            owners.setdefault((account.request, account.branch), []).append(account)
        kinds = dict.fromkeys(account.change for account in story.accounts)
        tip = "\n".join(f"{kind.words}: {kind.about}" for kind in kinds)
        found = [Paragraph(((totals_words(story.accounts), Tone.STRONG),), -1, tip)]
        order = sorted(owners, key=lambda owner: owner[0] != self._selected)
        for owner in order[:OWNERS]:
            mine = owners[owner]
            name = story.name(*owner) if owner[0] >= 0 else tr("Nobody's")
            words = "; ".join(account_words(account) for account in mine)
            tip = "\n".join(f"{a.change.words}: {block_words(a.blocks, 40)}" for a in mine)
            found.append(Paragraph(((name, Tone.STRONG), (words, Tone.QUIET)), owner[0], tip))
        if len(order) > OWNERS:
            rest = sum(len(account.blocks) for owner in order[OWNERS:] for account in owners[owner])
            others = len(order) - OWNERS
            more = tr("and {blocks:,} blocks of {others:,} others", blocks=rest, others=others)
            found.append(Paragraph(((more, Tone.QUIET),)))
        return found

    # -- Qt -------------------------------------------------------------------------------------------------------

    def paint(self, painter: QPainter, dirty: QRect) -> None:
        if self._story is None:
            return
        self._figure.draw(painter, self._selected)
        self._kernels.draw(painter)
        for left, baseline, title in self._heads:
            self.head.say(painter, left, baseline, title, theme.current().secondary)
        seen = QRectF(dirty)
        draw(painter, [each for each in self._laid if each.box.intersects(seen)], self.face, self._selected)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if self._story is None:
            return
        at = event.position()
        request = self._figure.request_at(at)
        if request < 0:
            request = next((each.paragraph.request for each in self._laid if each.box.contains(at)), -1)
        if request >= 0:
            self.request_chosen.emit(request)

    def tip(self, at: QPointF) -> str:
        if self._story is None:
            return ""
        found = self._figure.tip(at) or self._kernels.tip(at)
        return found or next((e.paragraph.tip for e in self._laid if e.box.contains(at)), "")


def _ranks(story: StepStory) -> list[tuple[str, Tone]]:
    words = [(story.communication_words, Tone.STRONG)] if story.ranks else []
    return words + [(f"{rank}: {told}", Tone.QUIET) for rank, told in story.ranks.items()]
