"""The lanes of a race as chips: a click edits one, dragging or Alt with an arrow moves it, × takes it away."""

from PySide6.QtCore import QMimeData, QPointF, Qt, Signal
from PySide6.QtGui import QDrag, QDragEnterEvent, QDropEvent, QKeyEvent, QMouseEvent
from PySide6.QtWidgets import QApplication, QFrame, QPushButton, QToolButton, QWidget

from app.compare.choice import MOST_LANES, LaneChoice
from app.compare.lanes.editor import LaneEditor
from app.compare.lanes.mark import LaneMark
from app.language import tr
from app.ui.controls import button
from app.ui.labels import label
from app.ui.layout.boxes import discard, named, row
from app.ui.layout.flow import Flow
from app.ui.look import theme
from engine.compare import lane_names

MIME = "application/x-batchscope-lane"


class _Name(QPushButton):
    """The part of a chip that opens the editor and can be dragged."""

    dragged = Signal()
    moved = Signal(int)

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._pressed: QPointF | None = None

    def mousePressEvent(self, event: QMouseEvent) -> None:
        self._pressed = event.position()
        super().mousePressEvent(event)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        if self._pressed is not None and event.buttons() & Qt.MouseButton.LeftButton:
            if (event.position() - self._pressed).manhattanLength() >= QApplication.startDragDistance():
                self._pressed = None
                self.setDown(False)
                self.dragged.emit()
            return
        super().mouseMoveEvent(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        step = {Qt.Key.Key_Left: -1, Qt.Key.Key_Right: 1}.get(Qt.Key(event.key()))
        if step and event.modifiers() & Qt.KeyboardModifier.AltModifier:
            self.moved.emit(step)
        else:
            super().keyPressEvent(event)


class LaneChip(QFrame):
    def __init__(self, index: int, name: str, removable: bool) -> None:
        super().__init__()
        named(self, f"lane_chip_{index}", "chip")
        self.index = index
        tip = tr("Change {lane}; drag it, or press Alt with an arrow key, to move it", lane=name)
        said, remove = tr("Lane {n}: {lane}", n=index + 1, lane=name), tr("Remove {lane}", lane=name)
        self.name = named(_Name(name), f"lane_{index}", "chip", said=said, tip=tip)
        self.cross = named(QToolButton(), f"lane_{index}_remove", said=remove, tip=remove)
        self.cross.setText("×")
        self.cross.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        margins = (theme.px(10), 0, theme.px(3 if removable else 10), 0)
        self.setLayout(row(LaneMark(index), self.name, self.cross, margins=margins, spacing=theme.px(4)))
        if not removable:
            self.cross.hide()


class LanePicker(QWidget):
    """Holds 1 to 4 lanes, in the order in which they are played."""

    lanes_changed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("lane_picker")
        self.setAcceptDrops(True)
        self.lanes: tuple[LaneChoice, ...] = ()
        self.chips: list[LaneChip] = []
        self._edited = 0
        self._adding = False  # the lane that is edited was added for it: Esc takes it away again
        self._dragging = False
        self._dropped: int | None = None
        self.editor = LaneEditor(self)
        self.heading = label(tr("Lanes"), "secondary")
        tip = tr("Add a lane, {most} at most", most=MOST_LANES)
        self.add = button("lane_add", tr("+ lane"), role="link", tip=tip)
        self._flow = Flow(self)
        self._flow.addWidget(self.heading)
        self._flow.addWidget(self.add)
        self.editor.edited.connect(self._on_edited)
        self.editor.moved.connect(lambda step: self.move_lane(self._edited, self._edited + step))
        self.editor.removed.connect(lambda: self.remove_lane(self._edited))
        self.editor.escaped.connect(self._on_escaped)
        theme.changes.theme_changed.connect(self._show)

    def set_lanes(self, lanes: tuple[LaneChoice, ...]) -> None:
        self.lanes = lanes[:MOST_LANES]
        self._show()

    def add_lane(self, choice: LaneChoice) -> None:
        """Adds a lane and opens its editor."""
        if len(self.lanes) < MOST_LANES:
            self._take((*self.lanes, choice))
            self.edit(len(self.lanes) - 1)
            self._adding = True

    def remove_lane(self, index: int) -> None:
        """A race keeps at least one lane."""
        if len(self.lanes) > 1:
            self.editor.hide()
            self._take(self.lanes[:index] + self.lanes[index + 1 :])

    def move_lane(self, index: int, to: int) -> None:
        """Puts a lane in another place; the others close up."""
        to = min(max(to, 0), len(self.lanes) - 1)
        if to == index:
            return
        lanes = list(self.lanes)
        lanes.insert(to, lanes.pop(index))
        self._take(tuple(lanes))
        if self.editor.isVisible():
            self._edited = to
            self._fill_editor()
        else:
            self.chips[to].name.setFocus()

    def edit(self, index: int) -> None:
        self._edited, self._adding = index, False
        self._fill_editor()
        layout = self.layout()
        if layout is not None:
            layout.activate()
        self.editor.open_below(self.chips[index])

    def _fill_editor(self) -> None:
        i = self._edited
        self.editor.show_lane(self.lanes[i], first=i == 0, last=i == len(self.lanes) - 1)

    def _take(self, lanes: tuple[LaneChoice, ...]) -> None:
        self.lanes = lanes
        self._show()
        self.lanes_changed.emit()

    def _on_escaped(self) -> None:
        if self._adding:
            self.remove_lane(self._edited)

    def _on_edited(self, choice: LaneChoice) -> None:
        i = self._edited
        self._take((*self.lanes[:i], choice, *self.lanes[i + 1 :]))

    def _show(self) -> None:
        focused = self._focused()
        discard(self._flow, *self.chips)
        self._flow.removeWidget(self.add)
        names = lane_names([c.lane for c in self.lanes])
        self.chips = [LaneChip(i, name, len(names) > 1) for i, name in enumerate(names)]
        for chip in self.chips:
            self._flow.addWidget(chip)
            chip.show()
            chip.name.clicked.connect(lambda checked=False, i=chip.index: self.edit(i))
            chip.name.moved.connect(lambda step, i=chip.index: self.move_lane(i, i + step))
            chip.name.dragged.connect(lambda chip=chip: self._drag(chip))
            chip.cross.clicked.connect(lambda checked=False, i=chip.index: self.remove_lane(i))
        self._flow.addWidget(self.add)
        if focused is not None and self.chips:
            self.chips[min(focused, len(self.chips) - 1)].name.setFocus()
        self.add.setVisible(len(self.lanes) < MOST_LANES)
        self.updateGeometry()

    def _focused(self) -> int | None:
        """Where the chip stands that has the focus, which its successor takes over: else it went to whatever comes next
        in the window. The button that adds lanes hands it to the last one, once there may be no more."""
        holder = self.window().focusWidget()
        if holder is self.add and len(self.lanes) >= MOST_LANES:
            return MOST_LANES - 1
        return next((chip.index for chip in self.chips if holder is not None and chip.isAncestorOf(holder)), None)

    # -- dragging -------------------------------------------------------------------------------------------------

    def _drag(self, chip: LaneChip) -> None:
        data = QMimeData()
        data.setData(MIME, str(chip.index).encode())
        drag = QDrag(self)
        drag.setMimeData(data)
        drag.setPixmap(chip.grab())
        self._dragging, self._dropped = True, None
        drag.exec(Qt.DropAction.MoveAction)
        self._dragging = False
        if self._dropped is not None:
            self.move_lane(chip.index, self._dropped)

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        if event.mimeData().hasFormat(MIME):
            event.acceptProposedAction()

    def dropEvent(self, event: QDropEvent) -> None:
        index = int(bytes(event.mimeData().data(MIME).data()).decode())
        event.acceptProposedAction()
        to = self._place_of(event.position(), index)
        if self._dragging:  # the dragged chip must outlive its drag
            self._dropped = to
        else:
            self.move_lane(index, to)

    def _place_of(self, position: QPointF, index: int) -> int:
        """Where a chip belongs that is dropped there: before the first one whose middle is further on."""

        def after(chip: LaneChip) -> bool:
            box = chip.geometry()
            below = position.y() > box.bottom()
            return below or (position.y() >= box.top() and position.x() > box.center().x())

        return sum(after(chip) for chip in self.chips if chip.index != index)
