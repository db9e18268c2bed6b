"""Token ids to text, one token at a time: the parts joined equal a one-shot decode, for any script."""

import codecs
from functools import lru_cache
from typing import Any, Protocol


class Detokenizer(Protocol):
    """Incremental decoding of one branch. `marked`: what the last token made certain is no word of the model's, but
    sets apart what is; no stop string is looked for in it."""

    @property
    def marked(self) -> bool: ...

    def push(self, token: int) -> str:
        """The text that this token makes certain; "" while a character is incomplete."""

    def flush(self) -> str:
        """What an incomplete character at the end decodes to."""


@lru_cache(maxsize=1)
def _byte_of_character() -> dict[str, int]:
    """The byte that each character of a byte-level vocabulary stands for (GPT-2's table, inverted)."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    table = {chr(b): b for b in printable}
    others = [b for b in range(256) if b not in set(printable)]
    return table | {chr(256 + i): b for i, b in enumerate(others)}


class ByteLevelVocabulary(dict[int, bytes]):
    """The bytes of every token of a byte-level BPE tokenizer, looked up when first asked for; special tokens have
    none."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        added = tokenizer.added_tokens_decoder
        self._added = {i: t.content for i, t in added.items() if not t.special}
        self.whole: dict[int, str] = {}  # what a token says that begins and ends with a character
        self.update(dict.fromkeys([*tokenizer.all_special_ids, *(i for i, t in added.items() if t.special)], b""))

    def __missing__(self, token: int) -> bytes:
        table = _byte_of_character()
        # None for ids past the vocabulary: padding of the embedding matrix.
        text = self._added.get(token) or self._tokenizer.convert_ids_to_tokens(token) or ""
        try:
            known = bytes([table[c] for c in text])
        except KeyError:
            known = str(text).encode()
        self[token] = known
        return known


class ByteLevelDetokenizer:
    """For byte-level BPE: bytes of the token through an incremental UTF-8 decoder. O(1) a token."""

    marked = False

    def __init__(self, vocabulary: ByteLevelVocabulary) -> None:
        self._vocabulary, self._whole = vocabulary, vocabulary.whole
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._amid = False  # a character

    def push(self, token: int) -> str:
        text = None if self._amid else self._whole.get(token)
        if text is None:
            text = self._decoder.decode(self._vocabulary[token])
            before, self._amid = self._amid, self._decoder.getstate()[0] != b""
            if not (before or self._amid):
                self._whole[token] = text
        return text

    def flush(self) -> str:
        self._amid = False
        return self._decoder.decode(b"", True)


class WindowDetokenizer:
    """For every other tokenizer: decodes a short window of ids and passes on what the newest token added.

    Invariant: ids[:read] are passed on; ids[prefix:read] is the context that the next decode needs, since a token's
    text can depend on the one before it (a leading space, say).
    """

    CONTEXT = 6
    marked = False

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._ids: list[int] = []
        self._passed = 0

    def _decode(self, ids: list[int]) -> str:
        return str(self._tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False))

    def push(self, token: int) -> str:
        self._ids.append(token)
        text = self._decode(self._ids)
        return "" if text.endswith("\ufffd") else self._pass_on(text)

    def flush(self) -> str:
        return self._pass_on(self._decode(self._ids))

    def _pass_on(self, text: str) -> str:
        """What is new of the window's text. A long window then loses what the rest decodes to the same tail without."""
        new, self._passed = text[self._passed :], len(text)
        if len(self._ids) >= 4 * self.CONTEXT:
            rest = self._ids[-self.CONTEXT :]
            tail = self._decode(rest)
            if tail and text.endswith(tail):
                self._ids, self._passed = rest, len(tail)
        return new
