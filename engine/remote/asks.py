"""Submissions as JSON, and back. A clock is of one machine: what crosses is how long ago a request was made."""

import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from engine.config.checks import InvalidInput
from engine.config.plain import plain
from engine.config.sampling_params import SamplingParams
from engine.config.submission import Message, Prompt, Submission

LONGEST_LABEL = 200
OLDEST = 3600.0  # seconds that a request may have waited before it was sent
FIELDS = {"prompt", "params", "age", "label"}


def told(submission: Submission) -> dict[str, Any]:
    """As JSON has it."""
    now = time.perf_counter()
    plainly = plain("prompt", submission)
    age = max(0.0, now - submission.time) if submission.time is not None else 0.0
    return {"prompt": plainly.prompt, "params": asdict(plainly.params), "age": age, "label": plainly.label}


def heard(value: Any) -> Submission:
    """What `told` said. Raises InvalidInput for anything else."""
    if not isinstance(value, dict) or set(value) != FIELDS:
        raise InvalidInput(f"submission: must be a mapping of {', '.join(sorted(FIELDS))}")
    age, label = value["age"], value["label"]
    if type(age) not in (int, float) or not 0 <= age <= OLDEST:
        raise InvalidInput(f"age={age!r:.40}: must be from 0 to {OLDEST:.0f} seconds")
    if not isinstance(label, str) or len(label) > LONGEST_LABEL:
        raise InvalidInput(f"label: must be text of at most {LONGEST_LABEL} characters")
    return Submission(
        _prompt(value["prompt"]), _params(value["params"]), time.perf_counter() - age, _text("label", label)
    )


def _prompt(value: Any) -> Prompt:
    if isinstance(value, str):
        return _text("prompt", value)
    if isinstance(value, list) and all(type(token) is int for token in value):
        return value
    if isinstance(value, list) and all(isinstance(message, dict) for message in value):
        return [_message(message) for message in value]
    raise InvalidInput("prompt: must be text, token ids, or messages with role and content")


def _message(value: dict[str, Any]) -> Message:
    if set(value) != {"role", "content"} or not all(isinstance(part, str) for part in value.values()):
        raise InvalidInput("prompt: a message has a role and a content, both text")
    return {"role": _text("role", value["role"]), "content": _text("content", value["content"])}


def _text(name: str, value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidInput(f"{name}: half of a character pair is no text") from None
    return value


def _params(value: Any) -> SamplingParams:
    if not isinstance(value, dict):
        raise InvalidInput("params: must be a mapping")
    try:
        return SamplingParams(**{name: _tuples(one) for name, one in value.items()})
    except InvalidInput:
        raise
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"params: {str(error)[:200]}") from None


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def token_ids(value: Any, most: int = 1 << 20) -> Sequence[int]:
    """Raises InvalidInput for anything but so many token ids at most."""
    if not isinstance(value, list) or len(value) > most or any(type(token) is not int for token in value):
        raise InvalidInput(f"tokens: must be a list of at most {most:,} token ids")
    return value
