"""What a growing trace tells of a few of its requests: their texts and figures. No Qt in here.

Reads each record once, from where the requests began: a chat costs what it says, however long the trace is.
"""

from dataclasses import dataclass, field

from engine import Trace
from engine.trace import THOUGHTS_OPENED, Ended, FinishReason, Parting, Record, Step, Submitted, begins_amid


@dataclass(slots=True, eq=False)
class Heard:
    """One request so far, its first sample. Times are seconds from the trace's start, None until they happen."""

    parts: list[str] = field(default_factory=list)
    submitted: float | None = None
    prompt_tokens: int = 0
    first: float | None = None
    last: float | None = None
    tokens: int = 0
    thought: float | None = None  # when the answer began, where something was thought before it
    thoughts: int = 0  # tokens until then
    parting: Parting = field(default_factory=Parting)
    reason: FinishReason | None = None
    error: str = ""

    @property
    def text(self) -> str:
        if len(self.parts) > 1:
            self.parts[:] = ["".join(self.parts)]
        return self.parts[0] if self.parts else ""

    @property
    def ttft(self) -> float | None:
        """Time to first token: first token − submit."""
        return self.first - self.submitted if self.first is not None and self.submitted is not None else None

    @property
    def rate(self) -> float | None:
        """Tokens a second: (tokens − 1) ÷ (last − first token)."""
        if self.first is None or self.last is None or self.last <= self.first:
            return None
        return (self.tokens - 1) / (self.last - self.first)

    def emitted(self, count: int, text: str, time: float) -> None:
        if count:
            self.first, self.last = time if self.first is None else self.first, time
            self.tokens += count
        if text:
            self.parts.append(text)
        if not self.parting.answers:
            self.parting.push(text, count)
            if self.parting.answers and self.parting.tokens:
                self.thought, self.thoughts = time, self.parting.tokens


class Hearing:
    """Follows requests in one trace. `requests` are those that are not over, by their numbers there."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.requests: dict[int, Heard] = {}
        self._position = len(trace.records)

    def listen(self, request: int, begin: int) -> Heard:
        """Follows one more, which came in behind the record `begin`."""
        heard = self.requests[request] = Heard()
        for record in self.trace.records[begin : self._position]:
            self._take(record, {request: heard})
        return heard

    def hear(self) -> None:
        """Takes in what is new. Those that are over are followed no more."""
        records = self.trace.records
        if not self.requests:
            self._position = len(records)
            return
        end = len(records)
        for record in records[self._position : end]:
            self._take(record, self.requests)
        self._position = end
        self.requests = {id: heard for id, heard in self.requests.items() if heard.reason is None}

    def _take(self, record: Record, requests: dict[int, Heard]) -> None:
        match record:
            case Step():
                _step(record, requests)
            case Submitted() if record.request in requests:
                heard = requests[record.request]
                heard.submitted, heard.prompt_tokens = record.time, len(record.token_ids)
                if begins_amid(record.text, record.params):
                    heard.parts.append(THOUGHTS_OPENED)
                    heard.parting = Parting(amid=True)
            case Ended() if record.request in requests and record.branch == 0:
                heard = requests[record.request]
                heard.emitted(len(record.token), record.text, record.time)
                heard.reason, heard.error = record.reason, record.error
            case _:
                pass


def _step(step: Step, requests: dict[int, Heard]) -> None:
    owners, branches, ends = step.request, step.branch, step.text_end.tolist()
    at = 0
    for row, end in zip(step.token_row.tolist(), ends, strict=True):
        heard = requests.get(int(owners[row]))
        if heard is not None and branches[row] == 0:
            heard.emitted(1, step.text[at:end], step.ended)
        at = end
