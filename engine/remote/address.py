"""Where a server is, and the key that it asks for."""

import os
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from engine.config.checks import InvalidInput
from engine.config.files import read_file
from engine.remote.frames import PATH

KEY_VARIABLE = "BATCHSCOPE_KEY"
LONGEST_KEY = 16 << 10  # a JSON web token is a key too


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """`url` as a person gives it: `http://host:8000`, with or without `/v1`; https where it is to be private. The key
    is never shown. Raises InvalidInput."""

    url: str
    key: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        given = self.url.strip()
        parts = urlsplit(given if "://" in given else f"http://{given}")
        try:
            named = bool(parts.hostname) and (parts.port is None or parts.port > 0)
        except ValueError:
            named = False
        plain = parts.path.rstrip("/") in ("", "/v1") and not (parts.query or parts.fragment or parts.username)
        if parts.scheme not in ("http", "https") or not named or not plain:
            shown = f"{parts.scheme}://{parts.hostname or ''}" if parts.username else given[:100]
            raise InvalidInput(f"server={shown!r}: give its address, such as http://127.0.0.1:8000")
        object.__setattr__(self, "url", f"{parts.scheme}://{parts.netloc}")
        key = self.key.strip()
        if len(key) > LONGEST_KEY or not (key.isascii() and (key.isprintable())):
            raise InvalidInput("key: a key is printable ASCII on one line")
        object.__setattr__(self, "key", key)

    @property
    def socket(self) -> str:
        """Where its WebSocket is."""
        return f"ws{self.url.removeprefix('http')}{PATH}"

    @property
    def local(self) -> bool:
        """Whether it is on this machine, which no proxy leads to."""
        host = urlsplit(self.url).hostname or ""
        try:
            return ip_address(host).is_loopback
        except ValueError:
            return host == "localhost"


def key_from(file: Path | None) -> str:
    """The key in a file, or that of $BATCHSCOPE_KEY, or none. Never an argument: other users of a machine see those.
    Raises InvalidInput."""
    if file is None:
        return os.environ.get(KEY_VARIABLE, "")
    try:
        return read_file(file, LONGEST_KEY).decode().strip()
    except OSError as error:
        raise InvalidInput(f"key={file}: the file cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise InvalidInput(f"key={file}: the file holds no key") from error
