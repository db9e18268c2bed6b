"""A run's prompts as a workload's file, so that the same can be sent again."""

import json
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

from engine.config import InvalidInput, Prompt, SamplingParams
from engine.export.source import Source
from engine.trace import Submitted


def prompt_lines(source: Source) -> Iterator[str]:
    """A JSON object a request, as `read_jsonl` takes it: when it came in, the prompt, what of its sampling is not as it
    is by default. What was no chat is told as the ids that the model was given. Raises InvalidInput for several runs
    that are no race."""
    if source.race is not None:
        for arrival in source.race.workload.arrivals:
            yield _line(arrival.time, arrival.prompt, arrival.params, arrival.label)
        return
    if not source.alone:
        raise InvalidInput(f"prompts are those of one run, and here are {len(source.runs)}; export them one by one")
    trace = source.runs[0].trace
    for record in trace.records:
        if isinstance(record, Submitted):
            prompt: Prompt = list(record.messages) or record.token_ids.tolist()
            yield _line(record.time - (trace.origin or 0.0), prompt, record.params, record.label)


def _line(time: float, prompt: Prompt, params: SamplingParams, label: str) -> str:
    if isinstance(prompt, str):
        told: dict[str, Any] = {"text": prompt}
    elif all(isinstance(part, dict) for part in prompt):
        told = {"messages": prompt}
    else:
        told = {"token_ids": list(prompt)}
    for field in fields(SamplingParams):
        value = getattr(params, field.name)
        if value != getattr(SamplingParams(), field.name):
            told[field.name] = value
    return json.dumps({"time": time} | ({"label": label} if label else {}) | told, ensure_ascii=False)


def write_prompts(source: Source, path: Path) -> None:
    """Raises OSError."""
    with path.open("w", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in prompt_lines(source))
