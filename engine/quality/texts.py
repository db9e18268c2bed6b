"""The texts that quality is measured on and AWQ is calibrated with: those that ship, and a person's files. No torch."""

import re
from collections.abc import Callable, Iterable
from pathlib import Path

import resources
from engine.checkpoints.inspect import EMBEDDED
from engine.config.files import read_file
from engine.config.specs import InvalidInput

TEXTS = {
    "stories": "held-out stories of the demo model's grammar, as chats",
    "prose": "plain English: narrative, explanation, dialogue, some code and figures",
    "calibration-stories": "other stories of the demo model's grammar, as chats: what its AWQ checkpoint was made with",
}
ANSWER, END = "<|assistant|>", "</s>"  # in the shipped chats, around what the assistant says
Encode = Callable[[str], list[int]]


def suited_text(source: str) -> str:
    """The name of the shipped text that suits a model: what the demo was trained on is no measure of another's."""
    return "stories" if source in EMBEDDED else "prose"


def suited_calibration(source: str) -> str:
    """The name of the shipped text to calibrate a model with: never the one that it is measured on, for the demo."""
    return "calibration-stories" if source in EMBEDDED else "prose"


def read_text(text: str) -> str:
    """A shipped text by its name, or a file's. Raises InvalidInput for what is not there, empty, or no UTF-8."""
    path = resources.path(f"texts/{text}.txt") if text in TEXTS else Path(text).expanduser()
    try:
        content = read_file(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidInput(
            f"{path}, byte {error.start + 1}: not UTF-8; save the file as UTF-8 and try again"
        ) from error
    except OSError as error:
        raise InvalidInput(
            f"cannot read the text {text!r}: {error.strerror}; "
            f"give the path of a text file, or one of {', '.join(TEXTS)}"
        ) from error
    if not content.strip():
        raise InvalidInput(f"the text {path} is empty; choose a file with some pages of text")
    return content.replace("\r\n", "\n")


def samples(content: str) -> list[str]:
    """The paragraphs of a text, or its lines where no empty line parts it."""
    stripped = content.strip()
    parts = re.split(r"\n[ \t]*\n" if re.search(r"\n[ \t]*\n", stripped) else "\n", stripped)
    return [part.strip() for part in parts if part.strip()]


def scored_tokens(encode: Encode, content: str) -> tuple[list[int], list[bool]]:
    """A text's token ids, and which are to be predicted: of chats as ours are written, for a tokenizer that knows their
    marks, the answers with their ends, which is what the demo learned; else all."""
    if ANSWER in content and len(encode(ANSWER)) == len(encode(END)) == 1:
        (begin,), (end,) = encode(ANSWER), encode(END)
        ids = [token for chat in token_ids(encode, samples(content)) for token in chat]
        scored, answering = [], False
        for token in ids:
            scored.append(answering)
            answering = token == begin or (answering and token != end)
        return ids, scored
    ids = encode(content)
    return ids, [True] * len(ids)


def token_ids(encode: Encode, parts: Iterable[str]) -> list[list[int]]:
    """Token ids of each part. A part that spells the begin-of-text token itself has it once, not twice."""
    encoded = (encode(part) for part in parts)
    return [ids[1:] if ids[:1] == ids[1:2] else ids for ids in encoded if ids]
