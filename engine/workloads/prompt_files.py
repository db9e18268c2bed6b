"""Prompts in files: lines of text, JSON lines, ShareGPT's JSON. What is wrong is named with its line."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from math import inf
from pathlib import Path
from random import Random
from typing import Any

from engine.config.checks import InvalidInput, known_keys, number, shown, text
from engine.config.files import PROMPTS, parse_json, read_file
from engine.config.sampling_params import SamplingParams
from engine.config.submission import Prompt
from engine.workloads.tokens import PIECE, TokenCounter, count_up_to
from engine.workloads.workload import Arrival

SHORTEST = 4  # ShareGPT's rules, as `vllm bench serve` has them, in tokens
LONGEST_PROMPT = 1024
LONGEST_TOTAL = 2048
LONGEST_LINE = 16 << 20  # bytes
_SAMPLING = tuple(f.name for f in fields(SamplingParams))
_CONVERSATION = '{"conversations": [{"from": "human", "value": "…"}, {"from": "gpt", "value": "…"}]}'
_PROMPTS = ("prompt", "messages", "text", "token_ids")


@dataclass(frozen=True, slots=True)
class PromptFile:
    """A file's prompts in order. `timed`: it says itself when they come in. `dropped`: what was left out, and why."""

    arrivals: tuple[Arrival, ...]
    timed: bool = False
    dropped: str = ""


def numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Numbered lines that are not empty. Raises InvalidInput."""
    for at, line in enumerate(_read(path).splitlines(), 1):
        if len(line) > LONGEST_LINE:
            raise InvalidInput(f"{path}, line {at}: has {len(line):,} bytes, over {LONGEST_LINE:,}; shorten it")
        try:
            decoded = line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise InvalidInput(
                f"{path}, line {at}, byte {error.start + 1}: not UTF-8; save the file as UTF-8 and try again"
            ) from error
        if decoded.strip():
            yield at, decoded


def _read(path: Path) -> bytes:
    try:
        return read_file(path, PROMPTS)
    except OSError as error:
        raise InvalidInput(f"cannot read the prompt file {path}: {error.strerror}; check the path") from error


def json_of(written: str) -> Any:
    """What is written. Raises ValueError, also for texts with half a character, which no tokenizer takes."""
    value = parse_json(written)
    if "\\u" in written:
        json.dumps(value, ensure_ascii=False).encode()
    return value


def first_character(path: Path) -> bytes:
    """What a file begins with, white space left out. Raises InvalidInput."""
    return _read(path).lstrip()[:1]


def as_prompt(text: str, chat: bool) -> Prompt:
    """What a user writes, as a chat or as plain text."""
    return [{"role": "user", "content": text}] if chat else text


def unwrapped(prompt: Prompt) -> Prompt:
    """A chat of one user's text as that text; any other prompt as it is."""
    match prompt:
        case [{"role": "user", "content": str(text)}]:
            return text
    return prompt


def read_text(path: Path, counter: TokenCounter, params: SamplingParams, chat: bool) -> PromptFile:
    """A prompt a line, all at once. Raises InvalidInput."""
    return PromptFile(_arrivals(path, counter, lambda line: Arrival(0.0, as_prompt(line, chat), params), "one a line"))


def _arrivals(path: Path, counter: TokenCounter, read: Callable[[str], Arrival], write: str) -> tuple[Arrival, ...]:
    """What `read` makes of each line. Raises InvalidInput with the line that is wrong, or `write` as the remedy."""
    arrivals = []
    for at, line in numbered_lines(path):
        where = f"{path}, line {at}"
        try:
            arrival = read(line)
        except InvalidInput as error:
            raise InvalidInput(f"{where}: {error}") from None
        _check_fits(where, arrival.prompt, counter)
        arrivals.append(arrival)
    if not arrivals:
        raise InvalidInput(f"the prompt file {path} has no prompts; write {write}")
    return tuple(arrivals)


def _check_fits(where: str, prompt: Prompt, counter: TokenCounter) -> None:
    """Refuses what is longer than the model's context by any count; a near miss is left to the engine."""
    if not counter.context:
        return
    parts = [prompt] if isinstance(prompt, str) else prompt
    texts = [part["content"] if isinstance(part, dict) else part for part in parts if not isinstance(part, int)]
    size = sum(count_up_to(counter.context, text, counter.count) for text in texts) or len(parts)
    if size >= counter.context:
        exact = "" if counter.exact else "about "
        about = "at least " if any(len(text) > PIECE for text in texts) else exact
        raise InvalidInput(
            f"{where}: prompt of {about}{size:,} tokens: the model has a context of {counter.context:,}; shorten it"
        )


# JSON lines.


def read_jsonl(path: Path, counter: TokenCounter, params: SamplingParams, chat: bool) -> PromptFile:
    """An object a line: prompt (text, sent as a chat where the model has one), messages, text (sent as it is) or
    token_ids; then, as wanted, time, label and any of SamplingParams. Raises InvalidInput with the line and key."""
    timed = False

    def read(line: str) -> Arrival:
        nonlocal timed
        try:
            entry = json_of(line)
        except ValueError as error:
            raise InvalidInput(f"not JSON: {error}; write one object a line") from error
        if not isinstance(entry, dict):
            raise InvalidInput(f'{line.strip()[:60]!r} is no object; write {{"prompt": "…"}}')
        timed |= "time" in entry
        return _arrival(entry, params, chat)

    return PromptFile(_arrivals(path, counter, read, 'an object such as {"prompt": "…"} a line'), timed)


def _arrival(entry: dict[str, Any], params: SamplingParams, chat: bool) -> Arrival:
    known_keys(entry, (*_PROMPTS, "time", "label", *_SAMPLING))
    given = [key for key in _PROMPTS if key in entry]
    if len(given) != 1:
        has = f"has {' and '.join(given)}" if given else "has no prompt"
        raise InvalidInput(f"{has}; give one of {', '.join(_PROMPTS)}")
    seconds = number("time", entry.get("time", 0.0), -inf, inf, "must be a number of seconds of at least 0")
    label = text("label", entry.get("label", ""))
    sampling = {key: value for key, value in entry.items() if key in _SAMPLING}
    return Arrival(seconds, _prompt(given[0], entry[given[0]], chat), params.with_(**sampling), label)


def _prompt(key: str, value: Any, chat: bool) -> Prompt:
    if key in ("prompt", "text") and isinstance(value, str) and value.strip():
        return as_prompt(value, chat and key == "prompt")
    listed = isinstance(value, list) and bool(value)
    if listed and key in ("prompt", "messages") and all(map(_is_message, value)):
        return list(value)
    if listed and key in ("prompt", "token_ids") and all(type(i) is int and i >= 0 for i in value):
        return list(value)
    must = {
        "prompt": "must be text, messages or token ids, and not empty",
        "text": "must be text that is not empty",
        "messages": 'must be messages such as {"role": "user", "content": "…"}',
        "token_ids": "must be whole numbers of at least 0",
    }
    raise InvalidInput(f"{key}={shown(value)}: {must[key]}")


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(value.get(key), str) for key in ("role", "content"))


# ShareGPT.


def read_sharegpt(
    path: Path, counter: TokenCounter, params: SamplingParams, chat: bool, count: int | None = None, seed: int = 0
) -> PromptFile:
    """Conversations in ShareGPT's JSON: the first turn is the prompt, the second fixes how many tokens are wanted.

    Taken in an order fixed by the seed, until there are `count`. Dropped, as `vllm bench serve` does: conversations of
    one turn; prompts or answers under 4 tokens, prompts over 1,024, totals over 2,048; and what exceeds the model's
    context. Raises InvalidInput with the number of the entry that is wrong.
    """
    content = _read(path)
    try:
        entries = json_of(content.decode())
    except ValueError as error:
        raise InvalidInput(f"{path}: not JSON: {error}; give ShareGPT's JSON, or JSON lines as .jsonl") from error
    if not isinstance(entries, list):
        raise InvalidInput(f"{path}: not ShareGPT's JSON: it is no list; write [{_CONVERSATION}, …]")
    turns = [_first_turns(f"{path}, entry {i}", entry) for i, entry in enumerate(entries, 1)]
    Random(seed).shuffle(turns)
    dropped: Counter[str] = Counter()
    arrivals: list[Arrival] = []
    for turn in turns:
        if count is not None and len(arrivals) == count:
            break
        if turn is None:
            dropped["of one turn"] += 1
            continue
        question, _ = turn
        size, wanted = (count_up_to(LONGEST_TOTAL, part, counter.count) for part in turn)
        prompt = as_prompt(question, chat)
        if size < SHORTEST or wanted < SHORTEST:
            dropped[f"under {SHORTEST} tokens"] += 1
        elif size > LONGEST_PROMPT:
            dropped[f"with prompts over {LONGEST_PROMPT:,} tokens"] += 1
        elif size + wanted > LONGEST_TOTAL:
            dropped[f"over {LONGEST_TOTAL:,} tokens in all"] += 1
        elif counter.context and counter.bound(prompt) + wanted > counter.context:
            dropped[f"over the model's context of {counter.context:,}"] += 1
        else:
            arrivals.append(Arrival(0.0, prompt, params.with_(max_tokens=wanted, ignore_eos=True)))
    why = ", ".join(f"{number:,} {reason}" for reason, number in dropped.items())
    if not arrivals:
        raise InvalidInput(f"{path} has no conversation to use ({why or 'it is empty'}); choose another file")
    return PromptFile(tuple(arrivals), dropped=f"{dropped.total():,} conversations dropped: {why}" if why else "")


def _first_turns(where: str, entry: Any) -> tuple[str, str] | None:
    """The first two turns' texts; None when there are fewer."""
    conversation = entry.get("conversations", entry.get("conversation")) if isinstance(entry, dict) else None
    if not isinstance(conversation, list):
        raise InvalidInput(
            f'{where}: has no conversations; write {{"conversations": [{{"from": "human", "value": "…"}}]}}'
        )
    if len(conversation) < 2:
        return None
    for turn in conversation[:2]:
        if not isinstance(turn, dict) or not isinstance(turn.get("value"), str):
            raise InvalidInput(f'{where}: the turn {shown(turn)} has no value; write {{"from": "human", "value": "…"}}')
    return conversation[0]["value"], conversation[1]["value"]
