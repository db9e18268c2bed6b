"""The requests of a run as tracks: a slice a state, and an arrow from submission to the last row."""

from dataclasses import dataclass

from engine.export.chrome_trace.event_file import EventFile, text
from engine.trace import Ended, Submitted

Track = tuple[int, int]
LONGEST = 200  # characters of a prompt


@dataclass(slots=True)
class _Sample:
    """`rest` is the row that a further one makes a step of the arrow, `last` the newest."""

    track: Track
    flow: int
    state: str
    since: int
    prompt: str
    rest: tuple[Track, int] | None = None
    last: tuple[Track, int] | None = None


class SampleTracks:
    """Each sample of a request has a track of its own, as long as it is open; times are nanoseconds."""

    def __init__(self, file: EventFile, pid: int, flows: int) -> None:
        self._file, self._pid = file, pid
        self.flows = flows  # so many arrows have begun in the file
        self._open: dict[tuple[int, int], _Sample] = {}

    def submit(self, record: Submitted, at: int) -> None:
        samples = record.params.branches
        asked = record.messages[-1]["content"] if record.messages else record.text
        words = " ".join((record.label or asked).split())
        told = text(
            {"prompt": words[:LONGEST], "prompt_tokens": len(record.token_ids), "max_tokens": record.params.max_tokens}
        )
        for branch in range(samples):
            name = sample_name(record.request, branch)
            tid = self._file.thread(self._pid, f"{name} {words[:40]}".strip())
            self.flows += 1
            self._open[record.request, branch] = _Sample((self._pid, tid), self.flows, "queued", at, told)

    def row(self, key: tuple[int, int], state: str, slot: Track, at: int) -> None:
        """A step has a row of it, on the track of a slot."""
        sample = self._open.get(key)
        if sample is None:  # a row that is held after its end
            return
        if sample.rest is not None:
            self._file.flow("t", *sample.rest, sample.flow)
            sample.rest = None
        if sample.state not in ("prefill", "decode"):
            begun = sample.last is None
            self._change(sample, state, at)
            if begun:
                self._file.flow("s", sample.track, sample.since - 1, sample.flow)
            sample.rest = slot, at
        elif state != sample.state:
            self._change(sample, state, at)
        sample.last = slot, at

    def leave(self, key: tuple[int, int], state: str, at: int) -> None:
        """It lost its place."""
        sample = self._open.get(key)
        if sample is not None:
            self._change(sample, state, at)

    def end(self, record: Ended, at: int) -> None:
        sample = self._open.pop((record.request, record.branch), None)
        if sample is not None:
            self._finish(sample, at, str(record.reason))

    def close(self, at: int) -> None:
        """What goes on at the end of the run."""
        for sample in self._open.values():
            self._finish(sample, at, "")
        self._open.clear()

    def _finish(self, sample: _Sample, at: int, reason: str) -> None:
        self._change(sample, "", at, reason)
        if sample.last is not None:
            self._file.flow("f", *sample.last, sample.flow)

    def _change(self, sample: _Sample, state: str, at: int, reason: str = "") -> None:
        end = max(at, sample.since + 1)
        args = sample.prompt if sample.state == "queued" else text({"ended": reason}) if reason else "{}"
        self._file.slice(sample.track, sample.state, sample.since, end, args)
        sample.state, sample.since = state, end


def sample_name(request: int, branch: int) -> str:
    """ "#12", and "#12.1" of its second sample."""
    return f"#{request}.{branch}" if branch else f"#{request}"
