"""The scrolling grid of stream cards. Only the cards in sight are wrapped and painted, and only those that changed."""

from collections.abc import Callable, Sequence

from PySide6.QtCore import QEvent, QPoint, QRect, Qt, Signal
from PySide6.QtGui import (
    QContextMenuEvent,
    QFocusEvent,
    QGuiApplication,
    QHelpEvent,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QResizeEvent,
)
from PySide6.QtWidgets import QAbstractScrollArea, QFrame, QMenu, QScrollBar, QWidget

from app.language import tr
from app.play.streams.card_painter import CardPainter
from app.play.streams.density import Density, planned
from app.play.streams.waiting import waiting_words
from app.playback.bridge import Bridge
from app.refusals import refusals
from app.ui.look import theme
from app.ui.look.font_face import Face
from app.ui.painted import fitting, write_middle
from app.ui.tips import show_tip
from app.words import request_tooltip, state_words
from engine.trace import RequestView, State

BACK = {Qt.Key.Key_Left: Qt.Key.Key_Right, Qt.Key.Key_Up: Qt.Key.Key_Down}  # keys that go back, and their opposites
BACK |= {Qt.Key.Key_PageUp: Qt.Key.Key_PageDown, Qt.Key.Key_Home: Qt.Key.Key_End}
EMPTY = tr("No streams yet: write a prompt below and send it, or many at once with the number beside Send.")
NO_MODEL = tr("No model is loaded: press Load at the left, or find another one with All models.")
VIEWER = tr("No run is open: press Ctrl+O for one, or drop its file here.")
LOADING = tr("The model is loading. Write a prompt meanwhile.")
MARGIN = 24  # pixels of the design, left and right of these


class StreamCards(QAbstractScrollArea):
    """The cards of a bridge's requests, in order of submission; `current` is the selected one or None.

    While the person is at the end it follows the newest request that has started; after scrolling away it stays put.
    """

    request_opened = Signal(int)  # its transcript is wanted
    stop_requested = Signal(int)
    regenerate_requested = Signal(int)
    compression_requested = Signal(int)
    follow_up_requested = Signal(int)
    following_changed = Signal(bool)
    empty = Face(13)

    def __init__(self, bridge: Bridge, parent: QWidget | None = None) -> None:
        hidden = Qt.ScrollBarPolicy.ScrollBarAlwaysOff
        super().__init__(parent, horizontalScrollBarPolicy=hidden, verticalScrollBarPolicy=hidden)
        self.setObjectName("stream_cards")
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setAccessibleName(tr("Streams"))
        self.viewport().setMouseTracking(True)
        self.viewport().setAttribute(Qt.WidgetAttribute.WA_OpaquePaintEvent)
        self.bridge = bridge
        self.empty_words = EMPTY
        self.ids: list[int] = []
        self.current: int | None = None
        self.following = True
        self._place: dict[int, int] = {}
        self._newest = -1  # place of the latest request that has started
        self._hovered: int | None = None
        self._density, self._placing = Density.AUTO, False
        self._painter = CardPainter(planned(Density.AUTO, 0, self.viewport().size()))
        # a bar over the cards' edge, so that it takes no column's room and nothing moves when it comes
        self._bar, bar = QScrollBar(Qt.Orientation.Vertical, self), self.verticalScrollBar()
        self._bar.hide()
        self._bar.valueChanged.connect(bar.setValue)
        bar.valueChanged.connect(self._on_scrolled)
        bar.valueChanged.connect(self._bar.setValue)
        self._lay_out()

    @property
    def empty_height(self) -> int:
        """Pixels of what is said in the middle where there are no streams."""
        room, face = self.viewport().rect(), self.empty
        lines = fitting(self.empty_words, face, room.width() - 2 * theme.px(MARGIN), room.height())
        return round(len(lines) * face.metrics.lineSpacing())

    def say_empty(self, words: str) -> None:
        """What to do next, where there is no card."""
        self.empty_words = words
        self.viewport().update()

    # -- what arrives ---------------------------------------------------------------------------------------------

    def clear(self) -> None:
        """Forgets every request: another trace begins."""
        self.ids, self._place, self._newest, self._hovered = [], {}, -1, None
        self._set_current(None)
        self._set_following(True)
        self.refresh()

    def show_first(self, ids: Sequence[int], count: int) -> None:
        """Shows the first `count` of `ids`, which begin with those that were shown before, or the other way round."""
        if count == len(self.ids):
            return
        for request in self.ids[count:]:
            del self._place[request]
        del self.ids[count:]
        for request in ids[len(self.ids) : count]:
            self._place[request] = len(self.ids)
            self.ids.append(request)
        if self._hovered not in self._place:
            self._hovered = None
        if self.current not in self._place:
            selected = self.bridge.scope.request
            self._set_current(selected if selected in self._place else None)
        self._lay_out()
        self.viewport().update()

    def moved(self, newest: int) -> None:
        """Another moment is on show; `newest` is the latest request that a step had computed then, or -1."""
        self._newest = self._place.get(newest, -1)
        if self.following:
            self._scroll(self._end())
        self.viewport().update()
        self._describe()

    def changed(self, requests: set[int], started: int) -> None:
        """Repaints those of `requests` that are in sight; `started` is the newest request of a step, or -1."""
        if started >= 0:
            self._newest = max(self._newest, self._place.get(started, -1))
        if self.following:
            self._scroll(max(self.verticalScrollBar().value(), self._end()))
        # one rectangle: a painter clipped to many is slower than one that paints a few cards too many
        dirty = QRect()
        for place in range(*self._in_sight()):
            if self.ids[place] in requests:
                dirty = dirty.united(self._rect(place))
        self.viewport().update(dirty)
        if self.current in requests:
            self._describe()

    def set_density(self, density: Density) -> None:
        """How close the cards stand."""
        self._density = density
        self.refresh()

    def refresh(self) -> None:
        """Lays out and paints anew: theme, zoom or width changed."""
        self._lay_out(anew=True)
        self.viewport().update()

    # -- selection ------------------------------------------------------------------------------------------------

    def select(self, request: int | None) -> None:
        """Selects and shows a request without telling anyone."""
        self._set_current(request if request in self._place else None)
        if self.current is not None:
            self._reveal(self._place[self.current])

    def _set_current(self, request: int | None) -> None:
        if request != self.current:
            self.current = request
            self._describe()
            self.viewport().update()

    def _choose(self, request: int | None) -> None:
        if request != self.current:
            self._set_current(request)
            self.bridge.scope.select(-1 if request is None else request)
        if request is not None:
            self._reveal(self._place[request])

    def view(self, request: int | None) -> RequestView | None:
        """The request as it stood at the moment on show."""
        return self.bridge.shown.get(request) if request is not None else None

    def _describe(self) -> None:
        view = self.view(self.current)
        said = tr("{count} streams; arrow keys choose one", count=len(self.ids))
        if view is not None:
            tail = " ".join(view.text[-300:].split())
            said = tr(
                "Stream {number}, {state}, {tokens} tokens: {tail}",
                number=view.request,
                state=state_words(view),
                tokens=len(view.tokens),
                tail=tail,
            )
        self.setAccessibleDescription(said)

    # -- geometry -------------------------------------------------------------------------------------------------

    def _lay_out(self, anew: bool = False) -> None:
        """As its density has it for all requests that there are, so that nothing moves where an earlier moment is on
        show."""
        size = self.viewport().size()
        top = None if self.following else self._in_sight()[0]
        plan = planned(self._density, max(len(self.ids), len(self.bridge.tally.ids)), size)
        if anew or plan != self._painter.plan:
            self._painter = CardPainter(plan)
        bar, pitch, gap = self.verticalScrollBar(), self._pitch, theme.px(plan.look.gap)
        rows = -(-len(self.ids) // self._columns) or 1
        self._placing = True
        for each in (bar, self._bar):
            each.setRange(0, max(0, rows * pitch - gap - size.height()))
            each.setPageStep(size.height())
            each.setSingleStep(pitch)
        self._placing = False
        self._bar.setVisible(bar.maximum() > 0)
        self._scroll(max(bar.value(), self._end()) if top is None else top // self._columns * pitch)

    @property
    def _columns(self) -> int:
        return self._painter.plan.columns

    @property
    def _pitch(self) -> int:
        """From one row of cards to the next."""
        return self._painter.plan.pitch

    def _rect(self, place: int) -> QRect:
        row, column = divmod(place, self._columns)
        plan, y = self._painter.plan, row * self._pitch - self.verticalScrollBar().value()
        return QRect(column * (plan.width + theme.px(plan.look.gap)), y, plan.width, self._painter.height)

    def _in_sight(self) -> tuple[int, int]:
        """The half-open range of places whose rows touch the viewport."""
        pitch, value = self._pitch, self.verticalScrollBar().value()
        first = value // pitch * self._columns
        last = (value + self.viewport().height() - 1) // pitch + 1
        return first, max(first, min(len(self.ids), last * self._columns))

    def request_at(self, point: QPoint) -> int | None:
        """The request whose card is under a point of the viewport."""
        return next((self.ids[i] for i in range(*self._in_sight()) if self._rect(i).contains(point)), None)

    # -- scrolling ------------------------------------------------------------------------------------------------

    def _end(self) -> int:
        """The scroll value that shows the newest started request with one row after it."""
        row = max(self._newest, 0) // self._columns + 2
        value = row * self._pitch - theme.px(self._painter.plan.look.gap) - self.viewport().height()
        return min(max(0, value), self.verticalScrollBar().maximum())

    def follow(self) -> None:
        """Goes to the newest request and follows it."""
        self._set_following(True)
        self._scroll(self._end())

    def _scroll(self, value: int) -> None:
        """Goes there by itself: no person has scrolled away."""
        self._placing = True
        self.verticalScrollBar().setValue(value)
        self._placing = False

    def _set_following(self, following: bool) -> None:
        if following != self.following:
            self.following = following
            self.following_changed.emit(following)

    def _reveal(self, place: int) -> None:
        rect, height = self._rect(place), self.viewport().height()
        bar, below = self.verticalScrollBar(), rect.bottom() + 1 - height
        bar.setValue(bar.value() + (rect.top() if rect.top() < 0 else max(0, below)))

    def _on_scrolled(self, value: int) -> None:
        if not self._placing:
            self._set_following(value >= self._end())
        self.viewport().update()

    # -- events ---------------------------------------------------------------------------------------------------

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        wide = self._bar.sizeHint().width()
        self._bar.setGeometry(self.width() - wide, 0, wide, self.height())
        self._lay_out()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self.viewport())
        t, region = theme.current(), event.region()
        painter.fillRect(event.rect(), t.window)
        if not self.ids:
            write_middle(painter, self.viewport().rect(), self.empty_words, self.empty, margin=MARGIN)
            return
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        requests, step = self.bridge.shown, self.bridge.scope.step
        refused = {each: words.why for each, words in refusals(step, self.bridge.header)} if step is not None else {}
        seen = [(place, self.ids[place]) for place in range(*self._in_sight())]
        if any((view := requests.get(request)) and view.state is State.WAITING for _, request in seen):
            ids = {request for _, request in seen}
            refused = waiting_words(requests.values(), self.bridge.header, ids) | refused
        for place, request in seen:
            rect, view = self._rect(place), requests.get(request)
            if view is not None and region.intersects(rect):
                selected, hovered = request == self.current, request == self._hovered
                dimmed = self.current is not None and not selected
                self._painter.paint(painter, rect, view, refused.get(request, ""), selected, dimmed, hovered)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if event.button() in (Qt.MouseButton.LeftButton, Qt.MouseButton.RightButton):
            self._choose(self.request_at(event.position().toPoint()))

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        if self.current is not None:
            self.request_opened.emit(self.current)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        self._hover(self.request_at(event.position().toPoint()))

    def leaveEvent(self, event: QEvent) -> None:
        self._hover(None)

    def _hover(self, request: int | None) -> None:
        if request != self._hovered:
            for each in (self._hovered, request):
                if each is not None:
                    self.viewport().update(self._rect(self._place[each]))
            self._hovered = request

    def focusInEvent(self, event: QFocusEvent) -> None:
        super().focusInEvent(event)
        self._describe()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        key, control = Qt.Key(event.key()), bool(event.modifiers() & Qt.KeyboardModifier.ControlModifier)
        request, by = self.current, self._steps(key)
        if by and self.ids and not control:
            place = self._in_sight()[0] if request is None else self._place[request] + by
            self._choose(self.ids[min(max(place, 0), len(self.ids) - 1)])
            return
        acts: dict[Qt.Key, Callable[[int], object]] = {
            Qt.Key.Key_Return: self.request_opened.emit,
            Qt.Key.Key_Enter: self.request_opened.emit,
            Qt.Key.Key_Delete: self.stop_requested.emit,
            Qt.Key.Key_R: self.regenerate_requested.emit,
            Qt.Key.Key_U: self.follow_up_requested.emit,
        }
        if control:
            acts = {Qt.Key.Key_C: self.copy_text, Qt.Key.Key_Delete: self.stop_requested.emit}
        if request is not None and key in acts:
            acts[key](request)
        else:
            event.ignore()

    def _steps(self, key: Qt.Key) -> int:
        """How many places on a key goes; 0 where it goes nowhere."""
        page = max(1, self.viewport().height() // self._pitch) * self._columns
        by = {Qt.Key.Key_Right: 1, Qt.Key.Key_Down: self._columns, Qt.Key.Key_PageDown: page}
        by[Qt.Key.Key_End] = len(self.ids)
        return by.get(key, 0) - (by[BACK[key]] if key in BACK else 0)

    def copy_text(self, request: int) -> None:
        """Puts a stream's whole text on the clipboard."""
        view = self.bridge.requests.get(request)
        if view is not None:
            QGuiApplication.clipboard().setText(view.text)

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        keyboard = event.reason() is QContextMenuEvent.Reason.Keyboard
        request = self.current if keyboard else self.request_at(event.pos())
        if request is None:
            return
        menu = self.menu(request)
        corner = self._rect(self._place[request]).center() if keyboard else event.pos()
        menu.popup(self.viewport().mapToGlobal(corner))

    def menu(self, request: int) -> QMenu:
        """What can be done with one stream; deletes itself when it closes."""
        view = self.bridge.requests.get(request)
        menu = QMenu(self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        over = view is None or view.state is State.FINISHED
        for text, act, enabled in (
            (
                f"{tr('Copy text')}\t{tr('Ctrl+C')}",
                lambda: self.copy_text(request),
                view is not None and bool(view.text),
            ),
            (f"{tr('Open transcript')}\t{tr('Enter')}", lambda: self.request_opened.emit(request), True),
            (f"{tr('Follow up')}\tU", lambda: self.follow_up_requested.emit(request), over),
            (f"{tr('Regenerate')}\tR", lambda: self.regenerate_requested.emit(request), True),
            (tr("Compress its prompt …"), lambda: self.compression_requested.emit(request), view is not None),
            (f"{tr('Stop this one')}\t{tr('Del')}", lambda: self.stop_requested.emit(request), not over),
        ):
            action = menu.addAction(text)
            action.triggered.connect(act)
            action.setEnabled(enabled)
        return menu

    def viewportEvent(self, event: QEvent) -> bool:
        if event.type() is QEvent.Type.ToolTip and isinstance(event, QHelpEvent):
            view = self.view(self.request_at(event.pos()))
            show_tip(event.globalPos(), request_tooltip(view) if view else "", self.viewport())
            return True
        return super().viewportEvent(event)
