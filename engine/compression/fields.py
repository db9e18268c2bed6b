"""What is asked for where a prompt is put into fields: names, a JSON schema or a pydantic model."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from engine.config.checks import InvalidInput, shown
from engine.config.output_rules import schema

LONGEST = 120  # characters of a field that is given by its name alone: an answer ends then, whatever the model is like

Fields = Sequence[str] | Mapping[str, Any] | type | str


def schema_of(fields: Fields) -> str:
    """The JSON schema of an object with these fields, as text: of a list of names, each a text of at most LONGEST
    characters; or the schema that is given, as a mapping, its text, or a pydantic model."""
    if isinstance(fields, (list, tuple)):
        names = [name.strip() if isinstance(name, str) else "" for name in fields]
        if not names or not all(names) or len(set(names)) < len(names):
            raise InvalidInput(f"fields={shown(fields)}: give names, each once, such as ['who', 'where']")
        text = {"type": "string", "minLength": 1, "maxLength": LONGEST}
        given: Any = {
            "type": "object",
            "properties": dict.fromkeys(names, text),
            "required": names,
            "additionalProperties": False,
        }
    else:
        given = fields
    found = schema(given)
    if found is None:
        raise InvalidInput("fields: give names, a JSON schema or a pydantic model")
    return found


def names_of(schema_text: str) -> list[str]:
    """The names of an object's fields, as far as the schema says them."""
    found = json.loads(schema_text).get("properties")
    return [str(name) for name in found] if isinstance(found, Mapping) else []
