"""A person's files: read whole, and as JSON."""

import errno
import json
import stat
from pathlib import Path
from typing import Any

MODEL_TEXT = 256 << 20  # bytes of a text of a model's folder at most: its config, its tokenizer, its card
PROMPTS = 2 << 30  # bytes of a file of prompts at most


def read_file(path: Path, most: int = MODEL_TEXT) -> bytes:
    """Its bytes, without the mark that some editors put before UTF-8. Raises OSError for what cannot be read: a pipe
    or a device would have no end, and of a file over `most` bytes nothing is read."""
    about = path.stat()
    if stat.S_ISDIR(about.st_mode):
        raise IsADirectoryError(errno.EISDIR, "it is a folder", str(path))
    if not stat.S_ISREG(about.st_mode):
        raise OSError(errno.EINVAL, "it is a pipe or a device, not a file", str(path))
    if about.st_size > most:
        raise OSError(errno.EFBIG, f"it has {about.st_size:,} bytes, over {most:,}", str(path))
    with path.open("rb") as file:
        return file.read(about.st_size).removeprefix(b"\xef\xbb\xbf")


def parse_json(written: str | bytes) -> Any:
    """What is written. Raises ValueError, for what is nested too deep too."""
    try:
        return json.loads(written)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error
