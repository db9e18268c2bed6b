"""The left side of the Models page: a field to search with, and the models in sections."""

from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QEvent, QItemSelectionModel, QModelIndex, QObject, QPoint, Qt, Signal
from PySide6.QtGui import QKeyEvent, QResizeEvent
from PySide6.QtWidgets import QBoxLayout, QFrame, QListView, QMenu

from app.language import tr
from app.models.items import Item, RowKey, Section
from app.models.reference import folder_reference, is_path
from app.models.rows import ModelRows, RowPainter
from app.ui.controls import button, line_edit
from app.ui.labels import Note, label
from app.ui.layout.boxes import column, held, row
from app.ui.layout.zoomed import zoomed
from app.ui.look import theme
from app.ui.progress import Progress
from app.ui.sheets.ask_path import ask_path
from engine.checkpoints import Place

EMPTY = tr("Nothing here has these words. Enter searches the hub for them.")
NONE_HERE = tr("Nothing on this machine has these words.")
SEARCH, ADD = tr("Search the hub"), tr("Add a folder…")
KEYS = (Qt.Key.Key_Down, Qt.Key.Key_Up, Qt.Key.Key_PageDown, Qt.Key.Key_PageUp)


def list_view(rows: ModelRows) -> QListView:
    view = QListView()
    view.setObjectName("models_list")
    view.setProperty("role", "list")
    view.setAccessibleName(tr("Models"))
    view.setModel(rows)
    view.setItemDelegate(RowPainter(rows))
    view.setEditTriggers(QListView.EditTrigger.NoEditTriggers)
    view.setVerticalScrollMode(QListView.ScrollMode.ScrollPerPixel)
    view.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
    view.setMouseTracking(True)
    view.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
    theme.changes.theme_changed.connect(view.doItemsLayout)
    return view


class ModelsList(QFrame):
    """Shows what it is given and says what a person wants; knows nothing of the hub or the disk."""

    chosen = Signal(object)  # Item, or None
    opened = Signal(object)  # Item: Enter or a double click
    hub_asked = Signal(str)  # words, or a hub id
    hub_cancelled = Signal()
    folder_added = Signal(object)  # Path
    removed = Signal(object)  # Item: Delete
    deletion_asked = Signal(object)  # Item: its files are to go
    clear_asked = Signal()
    rescan_asked = Signal()

    def __init__(self, rows: ModelRows) -> None:
        super().__init__()
        self.setObjectName("models_list_panel")
        self.setProperty("role", "panel")
        self.rows = rows
        self._kept: RowKey | None = None
        self._searching = self._restoring = False
        self._asked = False  # the hub, for the words in the field
        said, hint = tr("Search these models and the hub"), tr("Search these models and the hub…")
        self.search = line_edit("models_search", said, hint)
        self.search.setToolTip(tr("Words, owner/name, owner/name@revision, or the address of a model's page (Ctrl+F)"))
        self.search.setClearButtonEnabled(True)
        self.ask = button("models_ask_hub", SEARCH, self._on_ask)
        self.add = button("models_add_folder", ADD, self.choose_folder)
        self.progress = Progress("models_search_progress", tr("Searching the hub"))
        self.progress.show_share(None)
        self.progress.hide()
        self.note = Note("models_search_note")
        self.view = list_view(rows)
        self.empty_words = label(EMPTY, "secondary", "models_empty")
        self.empty_words.setWordWrap(True)
        self.empty_words.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.show_all = button("models_show_all", tr("Show all models"), self.search.clear)
        middle = (self.show_all, 0, Qt.AlignmentFlag.AlignCenter)
        self.empty = held(zoomed(column(None, self.empty_words, middle, None), spacing=12))
        self._buttons = zoomed(row((self.ask, 1), (self.add, 1)), spacing=8)
        parts = self.search, self._buttons, self.progress, self.note, (self.view, 1), (self.empty, 1)
        self.setLayout(zoomed(column(*parts), (8, 12, 4, 8), 8))
        self.search.textChanged.connect(self._on_typed)
        self.search.returnPressed.connect(self._on_enter)
        for keyed in (self.search, self.view):
            keyed.installEventFilter(self)
        self.view.selectionModel().currentChanged.connect(self._on_current)
        self.view.doubleClicked.connect(self._on_opened)
        self.view.customContextMenuRequested.connect(self._on_menu)
        rows.modelReset.connect(self._on_reset)
        theme.changes.theme_changed.connect(self._place_buttons)
        self._place_buttons()
        self._show_empty()

    # -- what is chosen -------------------------------------------------------------------------------------------

    @property
    def current(self) -> Item | None:
        return self.rows.item(self.view.currentIndex())

    def choose(self, key: RowKey) -> bool:
        """Chooses a row; False when it is not on show."""
        index = self.rows.find(key)
        if index.isValid():
            self.view.setCurrentIndex(index)
            self.view.scrollTo(index)
        return index.isValid()

    def say_searching(self, searching: bool) -> None:
        """The hub is being asked, or has answered."""
        self._searching = searching
        self._asked = self._asked or searching
        self._show_empty()
        self.progress.setVisible(searching)
        self.ask.setText(tr("Cancel the search") if searching else SEARCH)
        self._place_buttons()
        if searching:
            self.note.say("")

    def choose_folder(self) -> None:
        """Asks for a model's folder, to be listed."""

        def add(path: str) -> None:
            self.folder_added.emit(Path(path))

        ask_path(self, "models_folder_dialog", tr("Add a model folder"), "model/folder", add)

    # -- slots ----------------------------------------------------------------------------------------------------

    def _on_typed(self, words: str) -> None:
        self._asked = False
        self.note.say("")
        self.rows.set_words(words)

    def _on_enter(self) -> None:
        words = self.search.text().strip()
        folder = folder_reference(words)
        if folder is not None:
            self.search.clear()
            self.folder_added.emit(folder)
        elif is_path(words):
            self.note.say(tr("There is no folder {path}: check its path.", path=words), "warning")
        elif words:
            self.hub_asked.emit(words)

    def _on_ask(self) -> None:
        if self._searching:
            self.hub_cancelled.emit()
        elif self.search.text().strip():
            self._on_enter()
        else:
            self.note.say(tr("Type what to search for: a few words, or owner/name."))
            self.search.setFocus()

    def _on_current(self, current: QModelIndex) -> None:
        item = self.rows.item(current)
        if item is not None and not self._restoring:
            # a view that gets the focus makes its first row the current one, but does not select it
            self.view.selectionModel().select(current, QItemSelectionModel.SelectionFlag.ClearAndSelect)
            self._kept = item.key
            self.chosen.emit(item)

    def _on_reset(self) -> None:
        """The row that was chosen stays so where it is still on show, and the right side stays what it was."""
        if self._kept is not None:
            self._restoring = True
            self.choose(self._kept)
            self._restoring = False
        self._show_empty()

    def _show_empty(self) -> None:
        none = not self.rows.rows and bool(self.rows.words)
        self.empty_words.setText(tr("Searching the hub …") if self._searching else NONE_HERE if self._asked else EMPTY)
        self.view.setVisible(not none)
        self.empty.setVisible(none)

    def _on_opened(self) -> None:
        if self.current is not None:
            self.opened.emit(self.current)

    def _on_removed(self) -> None:
        if self.current is not None and self.current.removable:
            self.removed.emit(self.current)

    def _on_menu(self, place: QPoint) -> None:
        self.menu(self.rows.item(self.view.indexAt(place))).popup(self.view.viewport().mapToGlobal(place))

    def menu(self, item: Item | None) -> QMenu:
        """What can be done with a row, and with the list."""
        menu = QMenu(self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)

        def add(words: str, act: Callable[[], object]) -> None:
            menu.addAction(words).triggered.connect(lambda: act())

        if item is not None and item.removable:
            add(f"{tr('Remove from the list')}\t{tr('Del')}", lambda: self.removed.emit(item))
        if item is not None and item.entry is not None and item.entry.place is Place.CACHE:
            add(tr("Delete from this machine…"), lambda: self.deletion_asked.emit(item))
        menu.addSeparator()
        add(ADD, self.choose_folder)
        add(f"{tr('Look again at what is here')}\t{tr('Ctrl+R')}", self.rescan_asked.emit)
        if self.rows.items(Section.RECENT):
            add(tr("Forget all recent models"), self.clear_asked.emit)
        return menu

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._place_buttons()

    def _place_buttons(self) -> None:
        """Side by side where their words fit, else one above the other."""
        wide = 2 * max(self.ask.sizeHint().width(), self.add.sizeHint().width()) + theme.px(8 + 12)
        ways = QBoxLayout.Direction
        self._buttons.setDirection(ways.LeftToRight if wide <= self.width() else ways.TopToBottom)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Up and Down in the field go through the list; Enter and Delete in the list are for the row."""
        if not isinstance(event, QKeyEvent) or event.type() != QEvent.Type.KeyPress:
            return super().eventFilter(watched, event)
        match event.key():
            case Qt.Key.Key_Return | Qt.Key.Key_Enter if watched is self.view:
                self._on_opened()
            case Qt.Key.Key_Delete | Qt.Key.Key_Backspace if watched is self.view:
                self._on_removed()
            case key if watched is self.search and key in KEYS:
                if not self.view.currentIndex().isValid() and self.rows.find().isValid():
                    self.view.setCurrentIndex(self.rows.find())
                else:
                    self.view.keyPressEvent(event)
            case _:
                return super().eventFilter(watched, event)
        return True
