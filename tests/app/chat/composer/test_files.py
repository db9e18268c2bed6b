"""Which files a prompt takes, and whether it fits."""

from pathlib import Path

import pytest

from app.chat.composer.files import MOST, read_text
from app.chat.composer.room import Room
from engine import InvalidInput

WORDS = "Über den Fluß gingen fünf Füchse, müde und schön. Die Brücke war alt.\n" * 4


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_the_encoding_is_found_out(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "fox.txt"
    path.write_bytes(WORDS.replace("\n", "\r\n").encode(encoding))
    assert read_text(path) == WORDS


def test_what_is_no_text_or_too_much_is_refused_by_name(tmp_path: Path) -> None:
    picture, large, empty, folder = (tmp_path / name for name in ("fox.png", "large.log", "empty.md", "folder"))
    picture.write_bytes(b"\x89PNG\r\n\0\0\0")
    large.write_bytes(b"a" * (MOST + 1))
    empty.write_text(" \n")
    folder.mkdir()
    for path, why in (
        (picture, r"fox\.png is no text"),
        (large, r"large\.log has 1 MB: a file"),
        (empty, r"empty\.md is empty"),
        (folder, "folder is a folder"),
        (tmp_path / "none.txt", r"none\.txt cannot be read"),
    ):
        with pytest.raises(InvalidInput, match=why):
            read_text(path)


def test_a_prompt_that_is_surely_too_long_is_told_with_what_to_do() -> None:
    assert "take out a file" in Room(1100, 1100, 1130, 1024, 200).too_long
    assert Room(900, 1000, 1030, 1024, 200).too_long == ""  # perhaps it fits: the engine knows
    assert Room(1100, 1100, 1130, 1024, 200, exact=False).too_long == ""
    assert Room(1100, 1100, 1130, 0, 200).too_long == ""


def test_the_count_says_what_it_leaves_for_the_answer() -> None:
    assert Room(1, 1, 9, 1024, 200).words == "1 token  ·  ~9 of 1,024 with the conversation"
    tight = Room(12, 900, 910, 1024, 200)
    assert tight.tight
    assert tight.words.endswith("leaves 114 for the answer")
    assert Room(12, 12, 12, 0, 200, exact=False).words == "about 12 tokens"
