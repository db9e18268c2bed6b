"""Mooncake's traces: times, lengths and shared prefixes as they say, and what is wrong is named."""

import json
from pathlib import Path

import pytest

from engine import InvalidInput, load_workload
from engine.workloads import read_prompts


def trace(folder: Path, *requests: tuple[int, int, int, list[int]]) -> Path:
    keys = ("timestamp", "input_length", "output_length", "hash_ids")
    path = folder / "conversation.jsonl"
    path.write_text("\n".join(json.dumps(dict(zip(keys, each))) for each in requests))
    return path


def test_hashes_become_shared_prefixes(tmp_path: Path) -> None:
    path = trace(tmp_path, (3000, 700, 20, [5, 6]), (4500, 600, 9, [5, 7]), (5000, 6000, 5, list(range(12))))
    workload = load_workload(str(path))
    first, second = workload.arrivals  # the third is over the demo model's context
    assert [a.time for a in workload.arrivals] == [0.0, 1.5]
    assert [a.params.max_tokens for a in workload.arrivals] == [20, 9]
    assert (len(first.prompt), len(second.prompt)) == (700, 600)
    assert first.prompt[:512] == second.prompt[:512]
    assert first.prompt[512:600] != second.prompt[512:600]
    assert read_prompts(path) == workload.arrivals


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        ((0, 600, 5, [1]), "line 1: hash_ids: 600 tokens take a list of 2"),
        ((0, 0, 5, []), "line 1: input_length"),
        ((-1, 5, 5, [1]), "line 1: timestamp"),
        ((0, 5, 5, ["x"]), "line 1: hash_ids"),
        ((0, 900, 500, [1, 2]), "over the model's context"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, request_: tuple[int, int, int, list[int]], why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        load_workload(str(trace(tmp_path, request_)))
