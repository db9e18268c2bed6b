"""How many tokens a text has, without loading the model: from its tokenizer.json. No torch."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from engine.checkpoints.inspect import embedded_folder, inspect_folder, looks_like_path, tokenizer_of
from engine.config.specs import InvalidInput
from engine.config.submission import Prompt

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MESSAGE_TOKENS = 8  # what chat templates write around a message, generously
PIECE = 1 << 16  # characters of a long text that are counted at once
_WORD = re.compile(r"\w+|[^\w\s]")


def count_up_to(most: int, text: str, count: Callable[[str], int]) -> int:
    """Tokens of a text as `count` says; of a long one in pieces, and no more than `most` and some: a tokenizer takes
    150 bytes of memory for each character that it is given."""
    total = 0
    for begin in range(0, len(text), PIECE):
        total += count(text[begin : begin + PIECE])
        if total > most:
            break
    return total


class TokenCounter:
    """Counts tokens with a tokenizer, or words and signs where it is None: then `exact` is False. `context` is the
    model's, 0 where it is not known; `chat` says whether it has a chat template."""

    def __init__(self, tokenizer: Tokenizer | None = None, context: int = 0, chat: bool = True) -> None:
        self._tokenizer, self.context, self.chat = tokenizer, context, chat

    @property
    def exact(self) -> bool:
        return self._tokenizer is not None

    @cached_property
    def reads_words(self) -> bool:
        """False of a tokenizer that makes nothing of a plain sentence: no text has so many tokens then."""
        return self.count("Once upon a time there was a fox.") > 0

    def count(self, text: str) -> int:
        """Tokens of the text alone, without those that begin or end a prompt."""
        if self._tokenizer is None:
            return len(_WORD.findall(text))
        return len(self._tokenizer.encode(text, add_special_tokens=False))

    def bound(self, prompt: Prompt) -> int:
        """About the tokens of a whole prompt, rather too many: chats with what their template adds."""
        if isinstance(prompt, str):
            return self.count(prompt) + 1
        return sum(self.count(part["content"]) + MESSAGE_TOKENS if isinstance(part, dict) else 1 for part in prompt)


def counter_for(model_folder: str | Path | None = None) -> TokenCounter:
    """The counter of a model: its folder, "demo", or a hub id that was fetched before; None is the demo model. A hub
    model that is not here is estimated. Raises InvalidInput for a folder that is no model."""
    source = "demo" if model_folder is None else str(model_folder)
    folder = embedded_folder(source)
    if folder is None:
        named = isinstance(model_folder, Path) or looks_like_path(source)
        folder = Path(source).expanduser() if named else _fetched(source)
    if folder is None:
        return TokenCounter()
    if not folder.is_dir():
        raise InvalidInput(f"no folder {folder}: check the path of the model")
    info = inspect_folder(folder, folder.name)
    tokenizer = tokenizer_of(folder)
    if tokenizer is not None:
        tokenizer.no_truncation()
        tokenizer.no_padding()
    return TokenCounter(tokenizer, info.context, info.chat)


def _fetched(source: str) -> Path | None:
    """The folder of a hub model's snapshot on this machine, or None."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        path = try_to_load_from_cache(source, "config.json")
    except HFValidationError:
        return None
    return Path(path).parent if isinstance(path, str) else None
