"""What a span says of its request."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from engine.config.submission import Prompt
from engine.serving.exchange import Facts
from engine.serving.otlp import names

MOST_TEXT = 65_536  # characters of a prompt or an answer that are sent
LARGEST = 1 << 63  # of whole numbers

Attribute = str | int | float | Sequence[str]


def operation(facts: Facts) -> str:
    """What was asked for, by what was sent: a window's requests of both kinds have one route."""
    return (
        names.CHAT
        if any(map(_is_chat, facts.prompts)) or facts.route.endswith("chat/completions")
        else names.COMPLETION
    )


def _is_chat(prompt: Prompt) -> bool:
    return not isinstance(prompt, str) and any(isinstance(part, Mapping) for part in prompt[:1])


def common(facts: Facts) -> dict[str, Attribute]:
    """What its measures say too: few values of each."""
    said: dict[str, Attribute] = {
        names.OPERATION: operation(facts),
        names.PROVIDER_NAME: names.PROVIDER,
        names.REQUEST_MODEL: facts.model,
        names.RESPONSE_MODEL: facts.model,
    }
    return said | ({names.ERROR_TYPE: facts.error.partition(":")[0]} if facts.error else {})


def attributes(facts: Facts, text: bool) -> dict[str, Attribute]:
    """All that a span says; with `text` what was sent and said too."""
    said = common(facts) | {
        names.ROUTE: facts.route,
        names.STATUS: facts.status,
        names.RESPONSE_ID: facts.id,
        names.INPUT_TOKENS: facts.prompt_tokens,
        names.CACHED_TOKENS: facts.cached_tokens,
        names.OUTPUT_TOKENS: facts.output_tokens,
        names.FINISH_REASONS: facts.finish,
        names.LANGFUSE_TYPE: "generation",
    }
    if facts.caller:
        said[names.USER] = facts.caller
    if facts.first is not None:
        said[names.LANGFUSE_FIRST] = datetime.fromtimestamp(facts.first, UTC).isoformat()
    for name, attribute in names.REQUEST.items():
        value = getattr(facts.params, name, None)
        if value is not None and value < LARGEST:
            said[attribute] = value
    if text:
        if facts.params is not None and facts.params.stop:
            said[names.STOP] = facts.params.stop
        sent, answered = _input(facts.prompts), list(facts.texts)
        said |= {names.INPUT: sent, names.LANGFUSE_INPUT: sent}
        said |= {names.OUTPUT: _json(answered), names.LANGFUSE_OUTPUT: _plain(answered)}
    return said


def _input(prompts: Sequence[Prompt]) -> str:
    return _json(prompts[0] if len(prompts) == 1 else list(prompts))


def _plain(texts: list[str]) -> str:
    return texts[0][:MOST_TEXT] if len(texts) == 1 else _json(texts)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)[:MOST_TEXT].encode("utf-8", "replace").decode()
