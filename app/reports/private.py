"""Takes out of a text whose machine it is from."""

import getpass
import re
import socket
from pathlib import Path


def without_names(text: str) -> str:
    """The text without this person's home folder, name and the machine's name: "~", "someone", "this-machine"."""
    text = text.replace(str(Path.home()), "~") if len(str(Path.home())) > 1 else text
    text = re.sub(r"(?<![\w~])/(home|Users)/[^/\s\"']+", r"~", text)
    for name, instead in ((_user(), "someone"), (socket.gethostname(), "this-machine")):
        if len(name) > 2 and name not in ("root", "localhost"):
            text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", instead, text)
    return text


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # an id without a name, as in some containers
        return ""
