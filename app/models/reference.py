"""What a person means who types or pastes a model's name: a hub id with or without a revision, or words to search."""

import re
from dataclasses import dataclass
from pathlib import Path

_NAME = r"[A-Za-z0-9][\w.-]*"
_ID = re.compile(rf"({_NAME}/{_NAME})(?:@([\w./-]+))?")
_URL = re.compile(
    rf"(?:https?://)?(?:www\.)?(?:[\w-]+\.)*[\w-]+(?:\.\w+|:\d+)/({_NAME}/{_NAME})"
    r"(?:/(?:tree|blob|resolve|commit)/([\w.-]+))?(?:[/?#].*)?"
)
_NO_OWNERS = ("datasets", "spaces", "docs", "models", "papers", "collections")  # first parts of the hub's other pages


@dataclass(frozen=True, slots=True)
class Reference:
    """A model on the hub; without a revision, its newest state."""

    id: str
    revision: str | None = None


def hub_reference(text: str) -> Reference | None:
    """`owner/name`, `owner/name@revision`, or the address of a model's page; None for anything else."""
    text = text.strip()
    found = _ID.fullmatch(text) or _URL.fullmatch(text)
    if found is None or found[1].split("/")[0] in _NO_OWNERS:
        return None
    return Reference(found[1].removesuffix(".git"), found[2])


def is_path(text: str) -> bool:
    """Whether a person means a folder, be it there or not."""
    return text.strip().startswith(("/", "~", "./", "../"))


def folder_reference(text: str) -> Path | None:
    """A folder that is there, by its path; None for anything else."""
    if not is_path(text):
        return None
    try:
        path = Path(text.strip()).expanduser()
        return path if path.is_dir() else None
    except (OSError, RuntimeError):  # too long a name; nobody's home
        return None


def short_revision(revision: str | None) -> str:
    """A commit by its first seven figures; a branch or tag whole."""
    commit = revision is not None and re.fullmatch(r"[0-9a-f]{40}", revision)
    return (revision or "")[:7] if commit else revision or ""
