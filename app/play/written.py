"""All that the composer would send, to be brought back when something took its place. No Qt in here."""

from dataclasses import dataclass

from engine.workloads import Arrival


@dataclass(frozen=True, slots=True)
class Written:
    """`prompts` are a file's, by their `name`; empty where the written one is sent."""

    prompt: str
    system: str
    use_system: bool
    chat: bool
    each_line: bool
    count: int
    name: str
    prompts: tuple[Arrival, ...]
