"""The JSON schemas that are shipped, and reading one by name or path."""

from pathlib import Path
from typing import Any

import resources
from engine.config.checks import InvalidInput
from engine.config.files import parse_json, read_file

SCHEMAS = ("story",)
LONGEST = 1 << 20  # bytes


def load_schema(source: str | Path) -> dict[str, Any]:
    """A shipped schema by name, or a file's. Raises InvalidInput naming the file and what is wrong with it."""
    shipped = str(source) in SCHEMAS
    path = resources.path(f"schemas/{source}.json") if shipped else Path(source).expanduser()
    try:
        found = parse_json(read_file(path, LONGEST))
    except OSError as error:
        known = ", ".join(SCHEMAS)
        raise InvalidInput(
            f"cannot read the schema {path}: {error.strerror}; give a file, or one of {known}"
        ) from error
    except ValueError as error:
        raise InvalidInput(f"{path}: not JSON: {error}") from error
    if not isinstance(found, dict):
        raise InvalidInput(f"{path}: a JSON schema is an object, {{…}}")
    return found
