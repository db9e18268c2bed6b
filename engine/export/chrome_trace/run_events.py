"""The events of one run: steps and their phases, a slice a row on each slot, requests, counters."""

from collections import deque
from collections.abc import Mapping
from dataclasses import asdict

import numpy as np

from engine.export.chrome_trace.event_file import EventFile, nanoseconds, text
from engine.export.chrome_trace.samples import SampleTracks, Track, sample_name
from engine.trace import Array, Ended, Header, Kind, Notice, Record, Steered, Step, Submitted, Telemetry

LAUNCH = ("plan", "draft", "prepare", "forward", "sample")  # one after another from the step's start
READ_BACK = ("wait", "commit", "record")  # wait and commit end at the step's end, record follows
STATES = {Kind.PREFILL: "prefill", Kind.DECODE: "decode", Kind.HELD: "held"}
RANK_STATES = ("computing", "communicating", "waiting")
WINDOW = 1.0  # seconds that the rate of tokens is told of
PROCESSES = 3  # of a run


class RunEvents:
    """Takes a run's records in order and writes their events. `origin`: the trace's time at which the export begins;
    `pid`: the first of its `PROCESSES` numbers; `before`: what their names begin with."""

    def __init__(self, file: EventFile, origin: float, pid: int = 1, before: str = "", flows: int = 0) -> None:
        self._file, self._origin, self._pid = file, origin, pid
        self._slots_pid, requests_pid = pid + 1, pid + 2
        for number, name in enumerate(("engine", "slots", "requests")):
            file.process(pid + number, before + name)
        self._steps = (pid, file.thread(pid, "steps"))
        self._launch = (pid, file.thread(pid, "CPU: launches a step"))
        self._read_back = (pid, file.thread(pid, "CPU: reads it back"))
        self._gpu: Track | None = None
        self._ranks: list[Track] = []
        self._slots: list[Track] = []
        self.samples = SampleTracks(file, requests_pid, flows)
        self._until: dict[Track, int] = {}  # when a track's last slice ended
        self._told: dict[str, Mapping[str, float]] = {}
        self._emitted: deque[tuple[float, int]] = deque()
        self._blocks = 0
        self._apart = False  # the ranks are who decodes and its prefill worker
        self.now = 0

    def feed(self, record: Record) -> None:
        match record:
            case Step():
                self._step(record)
            case Submitted():
                self.samples.submit(record, self._at(record.time))
            case Ended():
                self.now = max(self.now, self._at(record.time))
                self.samples.end(record, max(self._at(record.time), self._until.get(self._steps, 0)))
            case Telemetry():
                self._telemetry(record)
            case Steered():
                budget = {name: value for name, value in asdict(record).items() if name != "time"}
                self._file.instant(self._pid, "the budget was moved", self._at(record.time), budget)
            case Notice():
                self._file.instant(self._pid, record.level, self._at(record.time), {"text": record.text})
            case Header():
                self._blocks, self._apart = record.blocks, record.config.disaggregated
            case _:
                pass

    def close(self) -> None:
        self.samples.close(self.now)

    def _at(self, seconds: float) -> int:
        return nanoseconds(seconds - self._origin)

    def _slice(self, track: Track, name: str, begin: int, end: int, args: str = "{}") -> tuple[int, int]:
        """As much of it as does not overlap the one before, and at least a nanosecond; when that is."""
        begin = max(begin, self._until.get(track, 0))
        end = max(end, begin + 1)
        self._until[track] = end
        self._file.slice(track, name, begin, end, args)
        return begin, end

    def _step(self, step: Step) -> None:
        ended = self._at(step.ended)
        args: dict[str, object] = {"rows": step.rows, "tokens": int(step.count.sum()), "emitted": len(step.token)}
        args |= {"running": step.running, "waiting": step.waiting}
        if step.graph:
            args["graph"] = step.graph
        if len(step.preempted):
            args["preempted"] = step.preempted.tolist()
        if len(step.refused):
            args["refused"] = [f"#{r}: {why}" for r, why in zip(step.refused.tolist(), step.refused_reason)]
        begin, end = self._slice(self._steps, f"step {step.step}", self._at(step.started), ended, text(args))
        self.now = max(self.now, end)
        self._phases(step)
        self._of_ranks(step)
        self._rows(step, begin, end)
        branches = step.preempted_branch.tolist() or [0] * len(step.preempted)
        for key in zip(step.preempted.tolist(), branches):
            self.samples.leave(key, "swapped out" if key in step.swapped_out else "preempted", end)
        self._counters(step, end)

    def _phases(self, step: Step) -> None:
        seconds = step.seconds
        begin = step.started
        for track, names in ((self._launch, LAUNCH), (self._read_back, READ_BACK)):
            if names is READ_BACK:
                begin = step.ended - seconds.get("wait", 0.0) - seconds.get("commit", 0.0)
            for name in names:
                took = seconds.get(name, 0.0)
                if took > 0:
                    args = text({"step": step.step}) if name != "forward" else text(_forward(step))
                    self._slice(track, name, self._at(begin), self._at(begin + took), args)
                    begin += took
        if step.device > 0:
            if self._gpu is None:
                self._gpu = (self._pid, self._file.thread(self._pid, "GPU"))
            done = step.ended - seconds.get("commit", 0.0)
            self._slice(self._gpu, f"step {step.step}", self._at(done - step.device), self._at(done))

    def _of_ranks(self, step: Step) -> None:
        """What each rank of a split model did from the launch to the end of forward. A record tells how long, not when:
        its slices lie one after another from the launch on. Of a pipeline it tells when each micro-batch was computed;
        what is empty between is a bubble."""
        while len(self._ranks) < len(step.rank_bytes):
            number = len(self._ranks)
            name = ("decode", "prefill worker")[number] if self._apart else f"rank {number}"
            self._ranks.append((self._pid, self._file.thread(self._pid, name)))
        if self._apart:
            for track, took, sent in zip(self._ranks, step.rank_computing.tolist(), step.rank_bytes.tolist()):
                args = {"step": step.step} | ({"bytes handed over": sent} if sent else {})
                if took > 0:
                    self._slice(track, "computing", self._at(step.started), self._at(step.started + took), text(args))
            return
        if len(step.micro_begun):
            self._of_stages(step)
            return
        begin = step.started + sum(step.seconds.get(name, 0.0) for name in LAUNCH[: LAUNCH.index("prepare")])
        told = [column.tolist() for column in (step.rank_computing, step.rank_communicating, step.rank_waiting)]
        for track, sent, *seconds in zip(self._ranks, step.rank_bytes.tolist(), *told):
            at = begin
            for name, took in zip(RANK_STATES, seconds):
                if took > 0:
                    args = {"step": step.step} | ({"bytes": sent} if name == "communicating" else {})
                    self._slice(track, name, self._at(at), self._at(at + took), text(args))
                    at += took

    def _of_stages(self, step: Step) -> None:
        shape = len(step.rank_bytes), -1
        spans = np.stack([step.micro_begun.reshape(shape), step.micro_ended.reshape(shape)], axis=2) + step.started
        for track, sent, each in zip(self._ranks, step.rank_bytes.tolist(), spans.tolist()):
            args = text({"step": step.step, "bytes": sent})
            for number, (begin, end) in enumerate(each):
                self._slice(track, f"micro-batch {number + 1}", self._at(begin), self._at(end), args)

    def _rows(self, step: Step, begin: int, end: int) -> None:
        said = [""] * step.rows
        at = 0
        for row, until in zip(step.token_row.tolist(), step.text_end.tolist()):
            said[row] += step.text[at:until]
            at = until
        zeros = [0] * step.rows
        columns = (step.request, step.branch, step.slot, step.first, step.count, step.kind, step.wasted)
        further = (_plain(column, zeros) for column in (step.padding, step.reused, step.drafted, step.accepted))
        number = step.step
        for request, branch, slot, first, count, kind, wasted, padding, reused, drafted, accepted, words in zip(
            *(column.tolist() for column in columns), *further, said
        ):
            while slot >= len(self._slots):
                name = f"slot {len(self._slots)}"
                self._slots.append((self._slots_pid, self._file.thread(self._slots_pid, name)))
            if slot < 0:
                continue
            args = f'{{"request":{request},"sample":{branch},"step":{number},"position":{first},"tokens":{count}'
            for name, value in (("wasted", wasted), ("padding", padding), ("reused", reused)):
                args += f',"{name}":{value}' if value else ""
            args += f',"drafted":{drafted},"accepted":{accepted}' if drafted else ""
            args += f',"text":{text(words)}}}' if words else "}"
            state, track = STATES[kind], self._slots[slot]
            name = f"{'verify' if drafted else state} {sample_name(request, branch)}"
            since, _ = self._slice(track, name, begin, end, args)
            if kind != Kind.HELD:
                self.samples.row((request, branch), state, track, since)

    def _counters(self, step: Step, at: int) -> None:
        emitted = self._emitted
        emitted.append((step.ended, len(step.token)))
        while emitted[0][0] <= step.ended - WINDOW:
            emitted.popleft()
        rate = sum(count for _, count in emitted) / max(min(WINDOW, step.ended - self._origin), 1e-3)
        self._count("running", at, {"samples": step.running})
        self._count("waiting", at, {"samples": step.waiting})
        self._count("tokens a second", at, {"emitted": round(rate, 1)})
        if self._blocks:
            owned = self._blocks - step.free_blocks - step.cached_blocks
            blocks = {"owned": owned, "kept for a prefix": step.cached_blocks, "free": step.free_blocks}
            self._count("KV blocks", at, blocks)
        if len(step.rank_bytes):
            self._count("bytes between ranks", at, {"sent": int(step.rank_bytes.sum())})
        kinds = ("used", "reserved", "internal", "external")
        self._count("KV tokens", at, {kind: getattr(step, f"kv_{kind}") for kind in kinds})

    def _telemetry(self, record: Telemetry) -> None:
        at = self._at(record.time)
        self._count("CPU", at, {"percent": round(record.cpu_percent, 1)})
        self._count("memory", at, {"MB": round(record.memory / 2**20)})
        if record.gpu_percent >= 0:
            self._count("GPU", at, {"percent": round(record.gpu_percent, 1)})
            self._count("GPU memory", at, {"MB": round(record.gpu_memory / 2**20)})

    def _count(self, name: str, at: int, values: Mapping[str, float]) -> None:
        if self._told.get(name) != values:
            self._told[name] = values
            self._file.counter(self._pid, name, at, values)


def _forward(step: Step) -> dict[str, float]:
    args = {"step": step.step, "rows": step.rows, "tokens": int(step.count.sum() + np.sum(step.padding))}
    return args | ({"attention_ms": round(1e3 * step.attention, 3)} if step.attention else {})


def _plain(column: Array, zeros: list[int]) -> list[int]:
    return column.tolist() if len(column) else zeros
