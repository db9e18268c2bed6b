"""`response_format`: what an answer must look like."""

from typing import Annotated, Any, Literal

from pydantic import Field

from engine.serving.asked.reading import Asked


class FreeText(Asked):
    type: Literal["text"]

    def rules(self) -> dict[str, Any]:
        """The sampling parameters that hold answers to it."""
        return {}


class AnyObject(Asked):
    type: Literal["json_object"]

    def rules(self) -> dict[str, Any]:
        return {"json_schema": {"type": "object"}}


class NamedSchema(Asked):
    name: str | None = None
    description: str | None = None
    strict: bool | None = None  # answers are always held to it
    schema_: dict[str, Any] = Field(alias="schema")


class JsonSchema(Asked):
    type: Literal["json_schema"]
    json_schema: NamedSchema

    def rules(self) -> dict[str, Any]:
        return {"json_schema": self.json_schema.schema_}


class Regex(Asked):
    """Ours."""

    type: Literal["regex"]
    regex: str

    def rules(self) -> dict[str, Any]:
        return {"regex": self.regex}


class Choice(Asked):
    """Ours."""

    type: Literal["choice"]
    choices: tuple[str, ...] = Field(min_length=1, max_length=10_000, strict=False)

    def rules(self) -> dict[str, Any]:
        return {"choices": self.choices}


OutputFormat = Annotated[FreeText | AnyObject | JsonSchema | Regex | Choice, Field(discriminator="type")]
