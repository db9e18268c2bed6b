"""From a body to a request; what is wrong is told by the field's name, without the value."""

from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from engine.serving.errors import ApiError

MOST_TOLD = 200  # characters of a reason
UNSUPPORTED = frozenset(
    """audio best_of function_call functions metadata modalities moderation parallel_tool_calls prediction
    prompt_cache_key prompt_cache_retention reasoning_effort safety_identifier service_tier store suffix tool_choice
    tools user verbosity web_search_options""".split()
)  # fields of OpenAI's interface


class Asked(BaseModel):
    """A body. Unknown fields are refused; no type is taken for another."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


Body = TypeVar("Body", bound=Asked)


def read(form: type[Body], body: bytes) -> Body:
    """The request in a body. Raises ApiError."""
    try:
        return form.model_validate_json(body)
    except ValidationError as error:
        raise _told(error) from None
    except RecursionError:
        raise ApiError(400, "the body is nested too deep", None, "invalid_json") from None


def _told(error: ValidationError) -> ApiError:
    """The first field that is wrong, with all that is wrong about it."""
    faults: list[Any] = error.errors(include_url=False, include_context=False, include_input=False)
    first = faults[0]
    if not first["loc"]:
        code = "invalid_json" if first["type"] == "json_invalid" else "invalid_value"
        return ApiError(400, f"the body: {_reason(first)}", None, code)
    name = str(first["loc"][0])[:MOST_TOLD]
    if first["type"] == "extra_forbidden" and len(first["loc"]) == 1:
        if name in UNSUPPORTED:
            return ApiError(400, f"{name} is not supported by this server; leave it out", name, "unsupported_parameter")
        return ApiError(400, f"{name} is no field of this request; leave it out", name, "unknown_parameter")
    if first["type"] == "missing" and len(first["loc"]) == 1:
        return ApiError(400, f"{name} is missing", name, "missing_required_parameter")
    reasons = dict.fromkeys(_reason(fault) for fault in faults if fault["loc"][0] == first["loc"][0])
    return ApiError(400, f"{name}: {', or '.join(reasons)}"[:1000], name, "invalid_value")


def _reason(fault: Any) -> str:
    """What pydantic says, at the place within the field."""
    places = [str(part) for part in fault["loc"][1:] if isinstance(part, int) or str(part).isidentifier()]
    said = str(fault["msg"]).removeprefix("Value error, ")
    return f"{'.'.join(places)}: {said}"[:MOST_TOLD] if places else said[:MOST_TOLD]
