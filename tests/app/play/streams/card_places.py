"""Where the wall has drawn a card."""

from PySide6.QtCore import QRect

from app.play.streams.wall import StreamWall


def card_rect(wall: StreamWall, request: int) -> QRect:
    """In the viewport's coordinates; outside it when scrolled away."""
    return wall.cards._rect(wall.cards._place[request])
