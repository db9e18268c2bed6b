"""Text files for a prompt. No Qt in here."""

from pathlib import Path

from app.language import tr
from app.words import bytes_words
from engine import InvalidInput

MOST = 1 << 20  # bytes of a file
BOMS = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")


def read_text(path: Path) -> str:
    """A file's text, its encoding found out. Raises InvalidInput where it is none, or too large."""
    try:
        if path.is_dir():
            raise InvalidInput(tr("{name} is a folder: drop the files in it", name=path.name))
        size = path.stat().st_size
        if size > MOST:
            has, may = bytes_words(size), bytes_words(MOST)
            raise InvalidInput(
                tr("{name} has {size}: a file of a prompt may have {most}", name=path.name, size=has, most=may)
            )
        data = path.read_bytes()
    except OSError as error:
        raise InvalidInput(tr("{name} cannot be read: {error}", name=path.name, error=error.strerror)) from error
    text = decoded(data)
    if text is None:
        raise InvalidInput(tr("{name} is no text: drop a file of text, such as .txt, .md or .py", name=path.name))
    if not text.strip():
        raise InvalidInput(tr("{name} is empty", name=path.name))
    return text.replace("\r\n", "\n").replace("\r", "\n")


def decoded(data: bytes) -> str | None:
    """UTF-8, UTF-16 by its mark, or what the bytes look like; None where they are no text."""
    if not data.startswith(BOMS) and b"\0" in data:
        return None
    try:
        return data.decode("utf-16" if data.startswith(BOMS[1:]) else "utf-8-sig")
    except UnicodeDecodeError:
        from charset_normalizer import from_bytes

        best = from_bytes(data).best()
        return str(best) if best is not None else None
