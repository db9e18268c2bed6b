"""Which detokenizer a tokenizer takes."""

from typing import Any

from engine.decoding.channels import ChannelDetokenizer, ChannelTokens
from engine.decoding.detokenizer import ByteLevelDetokenizer, ByteLevelVocabulary, Detokenizer, WindowDetokenizer


class DetokenizerFactory:
    """Makes the detokenizer that fits a transformers tokenizer; one factory a model."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._vocabulary: ByteLevelVocabulary | None = None
        self._pieces: dict[int, str] = {}
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if backend is not None:
            from tokenizers.decoders import ByteLevel

            if isinstance(backend.decoder, ByteLevel):
                self._vocabulary = ByteLevelVocabulary(tokenizer)

        self._channels = ChannelTokens.of(tokenizer)

    def __call__(self) -> Detokenizer:
        return ChannelDetokenizer(self._channels, self.plain) if self._channels is not None else self.plain()

    def plain(self) -> Detokenizer:
        """One that knows no channels: of prompts, which have all kinds of messages."""
        if self._vocabulary is not None:
            return ByteLevelDetokenizer(self._vocabulary)
        return WindowDetokenizer(self._tokenizer)

    def piece(self, token: int) -> str:
        """A token's text by itself, special tokens by their names; a byte that is no character reads as U+FFFD."""
        if token not in self._pieces:
            text = self.plain()
            said = text.push(token) + text.flush()
            self._pieces[token] = said or str(self._tokenizer.convert_ids_to_tokens(token) or "")
        return self._pieces[token]
