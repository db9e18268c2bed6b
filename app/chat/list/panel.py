"""The left side of the Chat page: a new conversation, a field to search with, and what there is."""

from __future__ import annotations

from PySide6.QtCore import QItemSelectionModel, QPoint, Qt, Signal
from PySide6.QtGui import QAction, QKeySequence
from PySide6.QtWidgets import QFrame, QListView, QMenu

from app.chat.list.rows import ChatRowPainter, ChatRows
from app.chat.store.conversations import Conversation
from app.language import tr
from app.ui.controls import button, line_edit
from app.ui.labels import label
from app.ui.layout.boxes import column, named
from app.ui.layout.zoomed import zoomed

NOTHING = tr("No conversation has these words.")
EMPTY = tr("Conversations are kept here.")


class ConversationList(QFrame):
    """`current` is the one that is chosen; what is done with one is for others."""

    chosen = Signal(object)  # Conversation
    opened = Signal()  # Enter: on to the prompt
    new_asked = Signal()
    searched = Signal(str)
    renamed = Signal(object, str)
    pin_asked = Signal(object)
    delete_asked = Signal(object)

    def __init__(self) -> None:
        super().__init__()
        named(self, "chat_list_panel", "panel")
        self.rows = ChatRows()
        self.rows.setParent(self)
        self.rows.renamed.connect(self.renamed)
        self.new = button("chat_new", tr("New conversation"), self.new_asked, tip=tr("Ctrl+N"))
        self.search = line_edit("chat_search", tr("Search conversations"), tr("Search titles and texts"))
        self.search.setToolTip(tr("Words, or their beginnings, of titles and of what was said (Ctrl+F)"))
        self.search.setClearButtonEnabled(True)
        self.search.textChanged.connect(self.searched)
        self.note = label("", "note", "chat_list_note")
        self.note.setWordWrap(True)
        self.note.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.view = self._make_view()
        self.rename_action = self._action(tr("Rename the conversation …"), self._on_rename, "F2")
        self.pin_action = self._action(tr("Pin the conversation"), lambda: self._tell(self.pin_asked), "")
        self.delete_action = self._action(tr("Delete the conversation"), lambda: self._tell(self.delete_asked), "Del")
        shown = self.new, self.search, (self.view, 1), self.note
        self.setLayout(zoomed(column(*shown), (10, 10, 10, 10), 8))

    def _make_view(self) -> QListView:
        view = named(QListView(), "chat_list", "list", said=tr("Conversations"))
        view.setModel(self.rows)
        view.setItemDelegate(ChatRowPainter(self.rows))
        view.setMouseTracking(True)
        view.setVerticalScrollMode(QListView.ScrollMode.ScrollPerPixel)
        view.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        view.setUniformItemSizes(True)
        view.setEditTriggers(QListView.EditTrigger.NoEditTriggers)
        view.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        view.customContextMenuRequested.connect(self._on_menu)
        view.selectionModel().currentChanged.connect(lambda index, before: self._on_current())
        view.activated.connect(lambda index: self.opened.emit())
        return view

    def _action(self, words: str, act: object, key: str) -> QAction:
        action = QAction(words, self)
        action.triggered.connect(act)
        action.setShortcut(QKeySequence(key))
        action.setShortcutContext(Qt.ShortcutContext.WidgetWithChildrenShortcut)
        self.view.addAction(action)
        return action

    @property
    def current(self) -> Conversation | None:
        return self.rows.row(self.view.currentIndex().row())

    def show_conversations(self, conversations: list[Conversation], current: int | None) -> None:
        """Those that there are, or that were found; `current` is the id of the one on show."""
        blocked = self.view.selectionModel().blockSignals(True)
        self.rows.show_rows(conversations)
        self.view.selectionModel().blockSignals(blocked)
        self.select(current)
        empty = NOTHING if self.search.text().strip() else EMPTY
        self.note.setText("" if conversations else empty)
        self.note.setVisible(not conversations)

    def select(self, id: int | None) -> None:
        """Shows which conversation is on show, and tells nobody."""
        model = self.view.selectionModel()
        blocked = model.blockSignals(True)
        place = next((i for i, row in enumerate(self.rows.rows) if row.id == id), -1)
        if place < 0:
            model.clear()
        else:
            flags = QItemSelectionModel.SelectionFlag
            model.setCurrentIndex(self.rows.index(place, 0), flags.ClearAndSelect)
        model.blockSignals(blocked)
        self.view.viewport().update()

    def _on_current(self) -> None:
        if (row := self.current) is not None:
            self.chosen.emit(row)

    def _on_rename(self) -> None:
        if self.view.currentIndex().isValid():
            self.view.edit(self.view.currentIndex())

    def _tell(self, signal: object) -> None:
        if (row := self.current) is not None:
            signal.emit(row)  # type: ignore[attr-defined]

    def _on_menu(self, point: QPoint) -> None:
        if not self.view.indexAt(point).isValid() or (row := self.current) is None:
            return
        self.pin_action.setText(tr("Unpin the conversation") if row.pinned else tr("Pin the conversation"))
        menu = QMenu(self)
        menu.setObjectName("chat_list_menu")
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        menu.addActions([self.rename_action, self.pin_action, self.delete_action])
        menu.popup(self.view.viewport().mapToGlobal(point))
