"""API keys: what is kept of them is their sha256."""

import contextlib
import hashlib
import hmac
import json
import os
import secrets
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from engine.config.checks import InvalidInput, check
from engine.config.files import parse_json, read_file

KEYS_VARIABLE = "BATCHSCOPE_API_KEYS"
PREFIX = "bs-"
BYTES = 32  # of chance in a key
LEAST = 16  # characters of a key that somebody chose
LONGEST_NAME = 64
MOST_BYTES = 8 << 20  # of a key file
GLANCE = 1.0  # seconds between looks at whether the file has changed


@dataclass(frozen=True, slots=True)
class Key:
    """A key by its name; `created` is Unix time in seconds, 0 for one of the environment."""

    name: str
    sha256: str
    created: float = 0.0


def digest(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()


def made_key(name: str, now: float | None = None) -> tuple[str, Key]:
    """A new key, which is told this once, and what is kept of it."""
    fine = bool(name) and len(name) <= LONGEST_NAME and name.isprintable() and name == name.strip()
    check(fine, "name", name, f"give printable text of at most {LONGEST_NAME} characters")
    key = PREFIX + secrets.token_urlsafe(BYTES)
    return key, Key(name, digest(key), time.time() if now is None else now)


class KeyFile:
    """A file of keys, for its owner alone. Raises InvalidInput for one that cannot be read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> tuple[Key, ...]:
        """None where there is no file."""
        try:
            kept = parse_json(read_file(self.path, MOST_BYTES))
            return tuple(Key(str(one["name"]), str(one["sha256"]), float(one["created"])) for one in kept["keys"])
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise InvalidInput(f"the keys in {self.path} cannot be read: {error.strerror}") from error
        except (ValueError, TypeError, KeyError) as error:
            raise InvalidInput(f"{self.path} is no file of keys; name another with --keys, or delete it") from error

    def add(self, key: Key) -> None:
        """Raises InvalidInput where another has its name."""
        known = self.read()
        taken = all(one.name != key.name for one in known)
        check(taken, "name", key.name, "another key has this name; revoke that first, or choose another")
        self._write((*known, key))

    def revoke(self, name: str) -> None:
        """Raises InvalidInput where there is none of that name."""
        known = self.read()
        left = tuple(one for one in known if one.name != name)
        names = ", ".join(one.name for one in known) or "none"
        check(len(left) < len(known), "name", name, f"there is no such key; those in {self.path} are: {names}")
        self._write(left)

    def _write(self, keys: tuple[Key, ...]) -> None:
        """Whole or not at all."""
        self.path.parent.mkdir(0o700, parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=self.path.parent, prefix=".keys-")  # for its owner alone
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump({"keys": [asdict(key) for key in keys]}, file, indent=1)
            os.replace(name, self.path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise


def keys_of_environment(environment: Mapping[str, str]) -> tuple[Key, ...]:
    """Those of $BATCHSCOPE_API_KEYS: `name=key` or `key`, between commas. Raises InvalidInput, which shows no key."""
    found = []
    for number, part in enumerate(filter(None, map(str.strip, environment.get(KEYS_VARIABLE, "").split(","))), 1):
        name, equals, key = part.partition("=")
        if not equals:
            name, key = f"environment {number}", part
        if len(key) < LEAST:
            raise InvalidInput(f"{KEYS_VARIABLE}: key {number} has {len(key)} characters; give at least {LEAST}")
        found.append(Key(name, digest(key)))
    return tuple(found)


class KeyRing:
    """The keys of the environment and of a file, which is read again when it has changed: a key that was revoked is
    refused a second later. One that cannot be read any more has no keys."""

    def __init__(self, file: KeyFile | None, others: Iterable[Key] = (), own: Sequence[Key] = ()) -> None:
        """`own`: keys that this process makes for itself, as they come; they close no server."""
        self._file, self._others, self._own = file, tuple(others), own
        self._looked, self._state = 0.0, self._stat()
        self._keys = (*(file.read() if file is not None else ()), *self._others)
        self.required = bool(self._keys)  # what is closed at the start stays so

    def _stat(self) -> tuple[int, int, int] | None:
        if self._file is None:
            return None
        with contextlib.suppress(OSError):
            about = self._file.path.stat()
            return about.st_mtime_ns, about.st_size, about.st_ino
        return None

    def _refresh(self) -> None:
        now = time.monotonic()
        if self._file is None or now - self._looked < GLANCE:
            return
        self._looked = now
        if (state := self._stat()) != self._state:
            self._state, self._keys = state, self._others
            with contextlib.suppress(InvalidInput):
                self._keys = (*self._file.read(), *self._others)

    def name_of(self, given: str) -> str | None:
        """Whose key it is; all are compared, each in constant time."""
        self._refresh()
        given, found = digest(given), None
        for key in (*self._keys, *self._own):
            if hmac.compare_digest(key.sha256.encode(), given.encode()):
                found = key.name
        return found
