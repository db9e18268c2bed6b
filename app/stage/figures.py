"""Figures of what was played, in a scene's words: `{2.steps}` is the second lane's steps. No Qt."""

import re
from collections.abc import Callable, Mapping, Sequence

from app.language import digits
from engine import InvalidInput, Trace
from engine.trace import MEASURES, Measure, Metrics, bytes_text, measure

COUNTS = ("prompt_tokens", "output_tokens", "computed_tokens", "drafted_tokens", "accepted_tokens")  # of Metrics
READ: Mapping[str, Measure] = MEASURES | {key: Measure(key, key.replace("_", " "), "") for key in COUNTS}
OF_TRACE: Mapping[str, Callable[[Trace], str]] = {
    "weights": lambda trace: bytes_text(trace.header.model.weight_bytes),
    "kv_token": lambda trace: bytes_text(trace.header.kv_token_bytes),
    "state": lambda trace: bytes_text(trace.header.model.state_bytes),
    "ttft.longest": lambda trace: MEASURES["ttft.p99"].text(max(view.ttft or 0.0 for view in trace.requests.values())),
}
PLACE = re.compile(r"\{(\d+)\.([\w.]+)\}")  # of a figure in words: a lane, counted from 1, and a key


def check_places(words: str, lanes: int) -> None:
    """Raises InvalidInput for a figure that no lane has."""
    for lane, key in PLACE.findall(words):
        if not 1 <= int(lane) <= lanes:
            raise InvalidInput(f"{{{lane}.{key}}}: there is no lane {lane}; lanes are counted from 1")
        if key not in OF_TRACE and key not in READ:
            known = ", ".join((*OF_TRACE, *COUNTS, *MEASURES))
            raise InvalidInput(f"{{{lane}.{key}}}: no such figure; use one of {known}")


def filled(words: str, traces: Sequence[Trace]) -> str:
    """The words with every figure in its place; a lane that was not played has "–"."""
    measured: dict[int, Metrics] = {}

    def text(found: re.Match[str]) -> str:
        lane, key = int(found[1]) - 1, found[2]
        if lane >= len(traces) or not traces[lane].records:
            return "–"
        if key in OF_TRACE:
            return OF_TRACE[key](traces[lane])
        if lane not in measured:
            measured[lane] = measure(traces[lane])
        return digits(READ[key].text(READ[key].read(measured[lane])))

    return PLACE.sub(text, words)
