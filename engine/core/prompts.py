"""From what a caller gives as a prompt to token ids: text, ids or chat messages, checked."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from engine.config.specs import InvalidInput, Message, Prompt
from engine.trace.records import ModelCard


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
                raise InvalidInput(f"prompt={prompt!r}: give text, a list of token ids or a list of chat messages")
            elif prompt and all(isinstance(part, Mapping) for part in prompt):
                encoded = self._chat(cast("Sequence[Message]", prompt))
            else:
                encoded = self._ids(cast("Sequence[int]", prompt))
        if not encoded.ids:
            raise InvalidInput(f"prompt={prompt!r}: it has no tokens; write something to continue")
        self._check_ids(encoded.ids)  # a tokenizer may have more words than the model has rows
        context = self._card.context
        if context and len(encoded.ids) >= context:
            raise InvalidInput(
                f"prompt of {len(encoded.ids):,} tokens: {self._card.name} has a context of {context:,}; shorten it"
            )
        return encoded

    def _text(self, prompt: str) -> Encoded:
        if not prompt.strip():
            raise InvalidInput(f"prompt={prompt!r}: it is empty; write something to continue")
        return Encoded(self._tokenizer(prompt, verbose=False).input_ids, prompt)

    def _chat(self, messages: Sequence[Message]) -> Encoded:
        for message in messages:
            if not isinstance(message.get("role"), str) or not isinstance(message.get("content"), str):
                raise InvalidInput(f"prompt: the message {message!r} needs a role and a content, both text")
        if not any(m["content"].strip() for m in messages if m["role"] == "user"):
            raise InvalidInput("prompt: no message of the user says anything; write something")
        if not self._card.chat:
            raise InvalidInput(f"{self._card.name} has no chat template: send the prompt as plain text (raw)")
        try:
            text = self._tokenizer.apply_chat_template(list(messages), add_generation_prompt=True, tokenize=False)
        except Exception as error:  # templates raise what they like
            raise InvalidInput(f"prompt: the chat template of {self._card.name} refuses it: {error}") from error
        # The template has written the special tokens: adding them again would give two BOS.
        return Encoded(
            self._tokenizer(text, add_special_tokens=False, verbose=False).input_ids, text, tuple(map(dict, messages))
        )

    def _ids(self, ids: Sequence[int]) -> Encoded:
        if not ids:
            raise InvalidInput("prompt=[]: it is empty; give at least one token id")
        self._check_ids(ids)
        return Encoded(list(ids), self._tokenizer.decode(ids))

    def _check_ids(self, ids: Sequence[int]) -> None:
        for i in ids:
            if not isinstance(i, int) or isinstance(i, bool) or not 0 <= i < self._card.vocabulary:
                raise InvalidInput(f"prompt: token id {i!r} is not in [0, {self._card.vocabulary})")
