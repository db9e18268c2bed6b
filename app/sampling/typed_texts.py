"""Lists as a person types them on one line: texts between commas, token ids with their bias."""

import json

from app.language import tr
from engine import InvalidInput


def typed_texts(text: str, name: str) -> tuple[str, ...]:
    r"""One text between commas or, for any character, one JSON list; \n means a new line."""
    text = text.strip()
    if text.startswith("["):
        try:
            found = json.loads(text)
        except ValueError as error:
            raise InvalidInput(tr("{name}: not a JSON list of texts ({error})", name=name, error=error)) from error
        if not isinstance(found, list) or not all(isinstance(s, str) and s for s in found):
            raise InvalidInput(tr("{name}: the list must hold texts that are not empty", name=name))
        return tuple(found)
    return tuple(s.strip().replace("\\n", "\n") for s in text.split(",") if s.strip())


def as_typed(texts: tuple[str, ...]) -> str:
    """The inverse of `typed_texts`."""
    plain = ", ".join(s.replace("\n", "\\n") for s in texts)
    if not plain.startswith("[") and typed_texts(plain, "") == texts:
        return plain
    return json.dumps(list(texts), ensure_ascii=False)


def typed_bias(text: str) -> tuple[tuple[int, float], ...]:
    """Such as 42 = -5, 7 = 2.5."""
    found = []
    for part in filter(None, map(str.strip, text.split(","))):
        token, _, value = part.partition("=")
        try:
            found.append((int(token), float(value)))
        except ValueError:
            raise InvalidInput(
                tr("logit_bias: {part!r} is not a token's id and a number, such as 42 = -5", part=part)
            ) from None
    return tuple(found)


def bias_as_typed(bias: tuple[tuple[int, float], ...]) -> str:
    """The inverse of `typed_bias`."""
    return ", ".join(f"{token} = {value:g}" for token, value in bias)
