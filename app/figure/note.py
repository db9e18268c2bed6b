"""What goes with a picture in its file. No Qt in here."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Note:
    """What goes with a picture: its title, how the run is made again and cited, what made it."""

    title: str
    about: str
    maker: str
