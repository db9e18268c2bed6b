"""Tokenizers of the kinds that models come with, small and made on the fly."""

from functools import lru_cache
from typing import Any

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

import resources

TEXT = [
    "the quick brown fox jumps over the lazy dog, doesn't it? Yes: it does!",
    "a story about a lantern and a violin that wouldn't sing",
    "größer straße café naïve Ελληνικά русский текст",
    "日本語の文章 と 中文 文字 한국어",
    "🙂🙃 👩‍👩‍👧 🇫🇷 שלום مرحبا",
]
SPECIAL = ["<pad>", "<s>", "</s>", "<unk>"]


def _fast(tokenizer: Tokenizer) -> Any:
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )


def _unigram_metaspace() -> Any:
    """As T5 and XLM-R have it: ▁ for a space, the first one taken off again."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=250, special_tokens=SPECIAL, unk_token="<unk>", show_progress=False)
    tokenizer.train_from_iterator(TEXT, trainer)
    return _fast(tokenizer)


def _bpe_byte_fallback() -> Any:
    """As Llama 2, Mistral and Gemma have it: characters outside the vocabulary become tokens of one byte each."""
    words = BPE_WORDS
    vocabulary = {token: i for i, token in enumerate(SPECIAL + [f"<0x{b:02X}>" for b in range(256)])}
    letters = sorted({c for word in words for c in word} | {"▁"})
    merges: list[tuple[str, str]] = []
    for letter in letters:
        vocabulary[letter] = len(vocabulary)
    for word in words:
        for end in range(2, len(word) + 1):
            if word[:end] not in vocabulary:
                vocabulary[word[:end]] = len(vocabulary)
                merges.append((word[: end - 1], word[end - 1]))
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens(SPECIAL)
    return _fast(tokenizer)


BPE_WORDS = ["▁the", "▁fox", "▁story", "▁about", "▁a", "ing", "é", "日本", "ed"]


def _word_piece() -> Any:
    """As BERT has it: ## for a piece inside a word, and spaces before punctuation taken out."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(vocab_size=300, special_tokens=SPECIAL, show_progress=False)
    tokenizer.train_from_iterator(TEXT, trainer)
    return _fast(tokenizer)


def _byte_level() -> Any:
    """As GPT-2, Qwen and Llama 3 have it, with words added later, special and not."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXT, trainer)
    fast = _fast(tokenizer)
    fast.add_tokens(["<think>", "né", "日本 語"])
    return fast


KINDS = {
    "demo": lambda: AutoTokenizer.from_pretrained(resources.path("models/stories-5m")),
    "byte level with added words": _byte_level,
    "unigram, metaspace": _unigram_metaspace,
    "bpe, byte fallback": _bpe_byte_fallback,
    "word piece": _word_piece,
}


@lru_cache
def tokenizer(kind: str) -> Any:
    return KINDS[kind]()
