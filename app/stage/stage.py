"""What of the window a tour plays on."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from PySide6.QtWidgets import QStackedWidget

from app.play.page import PlayPage
from app.playback.bridge import Bridge
from app.session.session import Session

if TYPE_CHECKING:
    from app.compare.page import ComparePage


@dataclass(frozen=True, slots=True)
class Stage:
    """`compare` builds the Compare page where it is not there yet; `show_page` shows a page by its place in `pages`."""

    session: Session
    bridge: Bridge
    play: PlayPage
    compare: "Callable[[], ComparePage]"
    pages: QStackedWidget
    show_page: Callable[[int], None]

    @property
    def compared(self) -> "ComparePage | None":
        """The Compare page, where it is on show."""
        page = self.pages.currentWidget()
        return cast("ComparePage", page) if page is not None and page.objectName() == "compare_page" else None
