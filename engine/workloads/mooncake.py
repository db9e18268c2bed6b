"""Mooncake's traces: requests as a service had them, in lengths and hashes of their prompts' blocks."""

from math import ceil
from pathlib import Path
from random import Random
from typing import Any

from engine.config.checks import InvalidInput, whole
from engine.config.sampling_params import SamplingParams
from engine.workloads.prompt_files import PromptFile, json_of, numbered_lines
from engine.workloads.tokens import TokenCounter
from engine.workloads.workload import Arrival

BLOCK = 512  # tokens that a hash stands for
KEYS = ("timestamp", "input_length", "output_length", "hash_ids")
LONGEST = 1 << 20  # tokens
TOKENS = range(256, 2048)  # ids that any vocabulary has, and that end no text


def is_mooncake(path: Path) -> bool:
    """Whether a file's first line is such a request. Raises InvalidInput where it cannot be read."""
    _, line = next(numbered_lines(path), (0, ""))
    try:
        entry = json_of(line)
    except ValueError:
        return False
    return isinstance(entry, dict) and "hash_ids" in entry and "input_length" in entry


def read_mooncake(path: Path, counter: TokenCounter, params: SamplingParams) -> PromptFile:
    """An object a line: timestamp (ms), input_length, output_length, hash_ids. A prompt is token ids that follow from
    its hashes, so that prompts share what blocks they shared. What does not fit the model's context is left out. Raises
    InvalidInput with the line and key."""
    arrivals: list[Arrival] = []
    long = first = 0
    for at, line in numbered_lines(path):
        try:
            entry = json_of(line)
            if not isinstance(entry, dict) or any(key not in entry for key in KEYS):
                raise InvalidInput(f"give {', '.join(KEYS)}")
            time, size, wanted, hashes = _checked(entry)
        except ValueError as error:
            raise InvalidInput(f"{path}, line {at}: {error}") from None
        if not arrivals and not long:
            first = time
        if counter.context and size + wanted > counter.context:
            long += 1
            continue
        ids = [token for each in hashes for token in Random(each).choices(TOKENS, k=BLOCK)][:size]
        sampling = params.with_(max_tokens=wanted, ignore_eos=True)
        arrivals.append(Arrival(max(0, time - first) / 1000, ids, sampling))
    dropped = f"{long:,} requests dropped: over the model's context of {counter.context:,}" if long else ""
    if not arrivals:
        raise InvalidInput(f"{path} has no request to use ({dropped or 'it is empty'}); choose another file or model")
    return PromptFile(tuple(arrivals), True, dropped)


def _checked(entry: dict[str, Any]) -> tuple[int, int, int, list[int]]:
    """Time in milliseconds, lengths in tokens, hashes. Raises InvalidInput."""
    time, size, wanted, hashes = (entry[key] for key in KEYS)
    whole("timestamp", time, 0)
    whole("input_length", size, 1, LONGEST)
    whole("output_length", wanted, 1, LONGEST)
    if not isinstance(hashes, list) or len(hashes) != ceil(size / BLOCK):
        raise InvalidInput(f"hash_ids: {size:,} tokens take a list of {ceil(size / BLOCK):,}, one for {BLOCK} tokens")
    for each in hashes:
        whole("hash_ids", each, 0)
    return time, size, wanted, hashes
