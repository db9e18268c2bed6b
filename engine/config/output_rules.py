"""Checks of what a request asks of its output: bias, banned words, and the grammar that it must follow."""

import json
from collections.abc import Mapping
from typing import Any

from engine.config.checks import check, number, shown, text

LONGEST = 1 << 20  # characters of a grammar
MOST_BIAS = 100.0  # as OpenAI's interface has it; so much rules a token in or out


def texts(name: str, value: Any) -> tuple[str, ...]:
    """One text or several, none of them empty."""
    given = (value,) if isinstance(value, str) else value
    listed = isinstance(given, (tuple, list)) and all(isinstance(s, str) and s for s in given)
    check(listed, name, given, "must be texts that are not empty")
    return tuple(given)


def biases(value: Any) -> tuple[tuple[int, float], ...]:
    """Token ids and what is added to their logits: of a mapping, or of pairs."""
    rule = "must map token ids to numbers from -100 to 100, such as {42: -5.0}"
    pairs = list(value.items()) if isinstance(value, Mapping) else value
    listed = isinstance(pairs, (tuple, list)) and all(isinstance(p, (tuple, list)) and len(p) == 2 for p in pairs)
    check(listed, "logit_bias", value, rule)
    found: dict[int, float] = {}
    for token, bias in pairs:
        token = int(token) if isinstance(token, str) and token.isdecimal() else token  # a key of JSON
        ok = isinstance(token, int) and not isinstance(token, bool) and token >= 0 and token not in found
        check(ok, "logit_bias", value, rule)
        found[token] = number("logit_bias", bias, -MOST_BIAS, MOST_BIAS, rule)
    return tuple(found.items())


def regular_expression(value: Any) -> str | None:
    """The pattern, whose grammar is checked with the model's tokenizer; None where there is none."""
    if value is None or value == "":
        return None
    found = text("regex", value)
    check(len(found) <= LONGEST, "regex", found, f"has {len(found):,} characters; at most {LONGEST:,} are taken")
    return found


def schema(value: Any) -> str | None:
    """A JSON schema as its text: given so, as a mapping, or as a pydantic model (what has `model_json_schema`)."""
    if value is None or value == "":
        return None
    rule = "must be a JSON schema: a mapping, its text, or a pydantic model"
    if isinstance(value, type) and hasattr(value, "model_json_schema"):
        value = value.model_json_schema()
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            check(False, "json_schema", value, f"is no JSON ({error}); {rule}")
    check(isinstance(value, Mapping), "json_schema", value, rule)
    try:
        found = json.dumps(value, ensure_ascii=False)
    except (ValueError, TypeError, RecursionError) as error:
        check(False, "json_schema", shown(value), f"cannot be written as JSON ({error})")
    check(len(found) <= LONGEST, "json_schema", found, f"has {len(found):,} characters; at most {LONGEST:,} are taken")
    return found
