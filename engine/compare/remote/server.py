"""Where a lane's server is, which model is asked for there, and where its key is found."""

import os
import re
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import quote, unquote, urlsplit

from engine.config.checks import InvalidInput

SERVER_GRAMMAR = "server=URL[:model=NAME][:key=VARIABLE][:name=NAME], e.g. server=http://127.0.0.1:8000:model=demo"
LONGEST_URL, LONGEST_KEY = 2000, 16 << 10
_PART = re.compile(r":(model|key|name)=")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")


@dataclass(frozen=True, slots=True)
class Server:
    """An OpenAI-compatible server at `url`, with or without a trailing `/v1`. `model` "" takes the only one it has.
    `key` names an environment variable; what that holds is sent as a bearer token, and kept nowhere. Raises
    InvalidInput."""

    url: str
    model: str = ""
    key: str = ""

    def __post_init__(self) -> None:
        given = str(self.url).strip()
        parts = urlsplit(given if "://" in given else f"http://{given}")
        try:
            named = bool(parts.hostname) and (parts.port is None or parts.port > 0) and len(given) <= LONGEST_URL
        except ValueError:
            named = False
        plain = given.isascii() and given.isprintable() and " " not in given
        if parts.scheme not in ("http", "https") or not (named and plain) or parts.query or parts.fragment:
            raise InvalidInput(f"server={given[:100]!r}: give its address, such as http://127.0.0.1:8000")
        if "@" in parts.netloc:
            raise InvalidInput(f"server={parts.hostname!r}: an address is shown; put its key in a variable: key=NAME")
        path = parts.path.rstrip("/").removesuffix("/v1")
        object.__setattr__(self, "url", f"{parts.scheme}://{parts.netloc}{path}")
        if self.key and not _VARIABLE.fullmatch(self.key):
            raise InvalidInput("key: name the environment variable that holds the key, such as key=LANE_KEY")
        if not isinstance(self.model, str) or not self.model.isprintable():
            raise InvalidInput(f"model={self.model!r:.100}: give the name that the server knows it by")

    @property
    def secret(self) -> str:
        """The key itself, "" where none is asked for. Raises InvalidInput where the variable is not set."""
        if not self.key:
            return ""
        held = os.environ.get(self.key, "").strip()
        if not held or len(held) > LONGEST_KEY or not (held.isascii() and held.isprintable()):
            raise InvalidInput(f"key={self.key}: the environment has no key by this name; set it first")
        return held

    @property
    def local(self) -> bool:
        """Whether it is on this machine, which no proxy leads to."""
        host = urlsplit(self.url).hostname or ""
        try:
            return ip_address(host).is_loopback
        except ValueError:
            return host == "localhost"

    @property
    def place(self) -> str:
        """Its host and port, for people."""
        return urlsplit(self.url).netloc

    def text(self) -> str:
        """What `parse_server` reads as this server."""
        parts = (f"server={self.url}", *(f"{k}={quote(v, '/')}" for k in ("model", "key") if (v := getattr(self, k))))
        return ":".join(parts)


def parse_server(text: str) -> tuple[Server, str]:
    """The server of a lane's text, and the lane's name ("" for none). Values are percent-decoded, and may have colons.
    Raises InvalidInput."""
    url, *parts = _PART.split(text.strip().removeprefix("server="))
    found: dict[str, str] = {}
    for key, value in zip(parts[::2], parts[1::2], strict=True):
        if key in found:
            raise InvalidInput(f"lane {text!r}: {key} is given twice")
        found[key] = unquote(value)
    if "=" in url:
        raise InvalidInput(f"lane {text!r}: {url!r}: a server's lane is {SERVER_GRAMMAR}")
    name = found.pop("name", "")
    try:
        return Server(url, **found), name
    except InvalidInput as error:
        raise InvalidInput(f"lane {text!r}: {error}") from None
