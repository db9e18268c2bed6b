"""The table `requests`, and a request as a row of it."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import JSON, Boolean, Column, DateTime, Float, Integer, MetaData, String, Table, Text

from engine.config.sampling_params import SamplingParams
from engine.serving.exchange import Facts

SCHEMA = MetaData()
Json = JSON(none_as_null=True)
REQUESTS = Table(
    "requests",
    SCHEMA,
    Column("id", String(64), primary_key=True),  # as the answer has it
    Column("time", DateTime(timezone=True), nullable=False, index=True),  # of arrival; in SQLite UTC without saying so
    Column("key_name", Text, nullable=False),  # empty where no key was asked for
    Column("route", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("stream", Boolean, nullable=False),
    Column("parameters", Json),  # those that differ from the defaults; without --log-text none that is text
    Column("prompt_tokens", Integer, nullable=False),
    Column("cached_tokens", Integer, nullable=False),  # of the prompt
    Column("output_tokens", Integer, nullable=False),
    Column("queue_seconds", Float),
    Column("ttft_seconds", Float),
    Column("latency_seconds", Float, nullable=False),
    Column("finish_reasons", Json, nullable=False),  # of each choice
    Column("status", Integer, nullable=False),  # of HTTP; 499: the client went away first
    Column("error", Text),
    Column("prompts", Json),  # these two with --log-text alone
    Column("texts", Json),
)
TEXTS = ("stop", "bad_words", "choices", "regex", "json_schema")  # parameters that a client has written
COUNTED = "logit_bias"  # told by its length: tokens are text too
Row = dict[str, Any]


def columns() -> list[str]:
    return [column.name for column in REQUESTS.columns]


def row_of(facts: Facts, text: bool) -> Row:
    """A row as JSON takes it, `time` in Unix seconds; with `text` it has what was sent and said."""
    return {
        "id": facts.id,
        "time": facts.received,
        "key_name": facts.caller,
        "route": facts.route,
        "model": facts.model,
        "stream": facts.streamed,
        "parameters": parameters(facts.params, text) if facts.params is not None else None,
        "prompt_tokens": facts.prompt_tokens,
        "cached_tokens": facts.cached_tokens,
        "output_tokens": facts.output_tokens,
        "queue_seconds": facts.queue,
        "ttft_seconds": facts.ttft,
        "latency_seconds": facts.latency,
        "finish_reasons": list(facts.finish),
        "status": facts.status,
        "error": (facts.message if text else facts.error) or facts.error or None,
        "prompts": list(facts.prompts) if text else None,
        "texts": list(facts.texts) if text else None,
    }


def parameters(params: SamplingParams, text: bool) -> Row:
    """Those that are not what they are by default, `max_tokens` always. Without `text`, of what a client has written it
    says how many there are."""
    usual = SamplingParams()
    given = {name: getattr(params, name) for name in SamplingParams.__dataclass_fields__}
    told = {name: value for name, value in given.items() if value != getattr(usual, name) or name == "max_tokens"}
    for name in () if text else (*TEXTS, COUNTED):
        if name in told:
            told[name] = 1 if isinstance(told[name], str) else len(told[name])
    return told


def known(row: Mapping[str, Any]) -> bool:
    """Whether a line of a spool is a row of this table: it may be another version's."""
    needed = {column.name for column in REQUESTS.columns if not column.nullable}
    return needed <= row.keys() <= set(columns()) and isinstance(row["time"], float)


def stored(row: Mapping[str, Any]) -> Row:
    """A row as the database takes it: no text has a NUL or half a character, which PostgreSQL does not know."""
    told = {name: _sound(row.get(name)) for name in columns()}
    return told | {"time": datetime.fromtimestamp(row["time"], UTC)}


def _sound(value: Any) -> Any:
    match value:
        case str():
            return value.replace("\0", "\ufffd").encode("utf-8", "replace").decode()
        case list() | tuple():
            return [_sound(part) for part in value]
        case dict():
            return {_sound(name): _sound(part) for name, part in value.items()}
        case _:
            return value
