"""From what a caller gives as a prompt to token ids: text, ids or chat messages, checked."""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, cast

from engine.config.checks import shown
from engine.config.specs import InvalidInput
from engine.config.submission import Message, Prompt
from engine.core.intake.time_limit import time_limit
from engine.trace.records import ModelCard
from engine.workloads.tokens import PIECE, count_up_to

LONG = 8  # characters for each token of the context, beyond which a text is counted in pieces first
SEAM = 4  # tokens that a piece may have for itself alone
PATIENCE = 5.0  # seconds that a chat template may take for one conversation


@dataclass(frozen=True, slots=True)
class Encoded:
    """A prompt as the model sees it."""

    ids: list[int]
    text: str
    messages: tuple[Message, ...] = ()


class PromptEncoder:
    """Encodes prompts for one model; safe from any thread. Raises InvalidInput naming what is wrong."""

    def __init__(self, tokenizer: Any, card: ModelCard) -> None:
        self._tokenizer, self._card = tokenizer, card
        self._lock = threading.Lock()  # a tokenizer's settings are shared state

    def __call__(self, prompt: Prompt) -> Encoded:
        with self._lock:
            if isinstance(prompt, str):
                encoded = self._text(prompt)
            elif not isinstance(prompt, (list, tuple)):
                raise InvalidInput(f"prompt={shown(prompt)}: give text, a list of token ids or a list of chat messages")
            elif prompt and all(isinstance(part, Mapping) for part in prompt):
                encoded = self._chat(cast("Sequence[Message]", prompt))
            else:
                encoded = self._ids(cast("Sequence[int]", prompt))
        if not encoded.ids:
            raise InvalidInput(f"prompt={shown(prompt)}: it has no tokens; write something to continue")
        self._check_ids(encoded.ids)  # a tokenizer may have more words than the model has rows
        if self._card.context and len(encoded.ids) >= self._card.context:
            self._refuse_long(f"{len(encoded.ids):,}")
        return encoded

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of these ids, special tokens by their names."""
        self._check_ids(tokens)
        with self._lock:
            return str(self._tokenizer.decode(tokens))

    def plain(self, text: str) -> list[int]:
        """The tokens of a text by itself, none of them special."""
        with self._lock:
            return self._encoded(text, add_special_tokens=False)

    def _text(self, prompt: str) -> Encoded:
        if not prompt.strip():
            raise InvalidInput(f"prompt={shown(prompt)}: it is empty; write something to continue")
        return Encoded(self._tokens(prompt), prompt)

    def _tokens(self, text: str, **options: bool) -> list[int]:
        """Those of a text that may be far too long are counted in pieces first."""
        context = self._card.context
        if context and len(text) > max(PIECE, LONG * context):
            size = count_up_to(context, text, lambda piece: len(self._encoded(piece, add_special_tokens=False)) - SEAM)
            if size > context:
                self._refuse_long(f"over {context:,}")
        return self._encoded(text, **options)

    def _refuse_long(self, tokens: str) -> NoReturn:
        name, context, stretched = self._card.name, self._card.context, self._card.stretched
        why = f" here: up to {stretched:,}, LongRoPE would turn the other requests' tokens too" if stretched else ""
        raise InvalidInput(f"prompt of {tokens} tokens: {name} has a context of {context:,}{why}; shorten it")

    def _encoded(self, text: str, **options: bool) -> list[int]:
        try:
            ids: list[int] = self._tokenizer(text, verbose=False, **options).input_ids
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # a panic of the tokenizer's library is no Exception
            raise InvalidInput(f"prompt: the tokenizer of {self._card.name} fails on it: {error}") from error
        return ids

    def _chat(self, messages: Sequence[Message]) -> Encoded:
        for message in messages:
            if not isinstance(message.get("role"), str) or not isinstance(message.get("content"), str):
                raise InvalidInput(f"prompt: the message {shown(message)} needs a role and a content, both text")
        if not any(m["content"].strip() for m in messages if m["role"] == "user"):
            raise InvalidInput("prompt: no message of the user says anything; write something")
        if not self._card.chat:
            raise InvalidInput(f"{self._card.name} has no chat template: send the prompt as plain text (raw)")
        try:
            with time_limit(PATIENCE):
                text = self._tokenizer.apply_chat_template(list(messages), add_generation_prompt=True, tokenize=False)
        except TimeoutError:
            told = f"takes longer than {PATIENCE:.0f} s for it; send it as plain text (raw)"
            raise InvalidInput(f"prompt: the chat template of {self._card.name} {told}") from None
        except Exception as error:  # templates raise what they like
            raise InvalidInput(f"prompt: the chat template of {self._card.name} refuses it: {error}") from error
        # The template has written the special tokens: adding them again would give two BOS.
        return Encoded(self._tokens(text, add_special_tokens=False), text, tuple(map(dict, messages)))

    def _ids(self, ids: Sequence[int]) -> Encoded:
        if not ids:
            raise InvalidInput("prompt=[]: it is empty; give at least one token id")
        self._check_ids(ids)
        return Encoded(list(ids), self._tokenizer.decode(ids))

    def _check_ids(self, ids: Sequence[int]) -> None:
        for i in ids:
            if not isinstance(i, int) or isinstance(i, bool) or not 0 <= i < self._card.vocabulary:
                raise InvalidInput(f"prompt: token id {shown(i)} is not in [0, {self._card.vocabulary})")
