"""What the charts draw, kept in bins of a quarter second as records come in. No Qt in here.

A step costs O(its rows), a refresh O(the bins in sight), and a bin 28 bytes or less a series for as long as the run is.
"""

from array import array
from bisect import bisect_right
from collections import deque

import numpy as np

from engine.trace import Array, Ended, Header, Record, Steered, Step, Submitted, TallyIndex, Telemetry

BIN = 0.25
RATE_SPAN = 1.0
TTFT_SPAN, ITL_SPAN = 5.0, 1.0


class Bins:
    """Columns of numbers, one row a bin, NaN until written; grows by doubling."""

    def __init__(self, fields: int, fill: float = np.nan) -> None:
        self._fill = fill
        self._values = np.full((fields, 256), fill, np.float32)
        self.count = 0

    def reach(self, place: int) -> None:
        """Makes the bins up to and with `place` exist."""
        if place >= self._values.shape[1]:
            more = np.full((len(self._values), max(place + 1, 2 * self._values.shape[1])), self._fill, np.float32)
            more[:, : self.count] = self._values[:, : self.count]
            self._values = more
        self.count = max(self.count, place + 1)

    def __getitem__(self, field: int) -> Array:
        """One column as far as it goes."""
        return self._values[field, : self.count]


class Extremes(Bins):
    """The smallest, largest and last value of each bin."""

    def __init__(self) -> None:
        super().__init__(3)
        self.last = np.nan

    def add(self, time: float, value: float) -> None:
        place = int(time / BIN)
        begin = self.count
        self.reach(place)
        self._values[:, begin : place + 1] = self.last  # bins in which nothing changed held the value before
        column = self._values[:, place]
        column[0] = np.fmin(column[0], value)
        column[1] = np.fmax(column[1], value)
        column[2] = self.last = value


class Percentiles(Bins):
    """p50, p95 and p99 of the samples of the last `span` seconds, at each bin's end."""

    QUANTILES = (50, 95, 99)

    def __init__(self, span: float) -> None:
        super().__init__(3)
        self._span = round(span / BIN)
        self._samples: deque[tuple[int, Array]] = deque()
        self._open = 0
        self._fresh = False

    def add(self, time: float, values: Array) -> None:
        place = int(time / BIN)
        if place > self._open:
            self.settle(time)
        self._samples.append((place, values))
        self._fresh = True

    def settle(self, time: float) -> None:
        """Closes the bins before `time`, and brings the open one up to date."""
        place = int(time / BIN)
        while self._open < place:
            self._write()
            self._open += 1
            if not self._samples and self._open < place:
                self._open = place
        self._write()

    def _write(self) -> None:
        while self._samples and self._samples[0][0] <= self._open - self._span:
            self._samples.popleft()
            self._fresh = True
        self.reach(self._open)
        if not self._samples:
            return
        if self._fresh:
            pooled = np.concatenate([values for place, values in self._samples if place <= self._open])
            self._values[:, self._open] = np.percentile(pooled, self.QUANTILES)
            self._fresh = False
        elif np.isnan(self._values[0, self._open]):
            self._values[:, self._open] = self._values[:, self._open - 1]


class ChartSeries:
    """Every series of one trace. `now` is the time of the latest record, `worked` that of the latest about a request:
    what is told of the machine goes on while nothing runs."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forgets everything: another trace begins."""
        self.now = self.worked = self.live_rate = 0.0  # `live_rate` is told by the window's clock, not by the records
        self.blocks = self.cores = 0
        self.tokens = Bins(1, 0.0)
        self.drafts = Bins(3, 0.0)  # rows that verified drafts, tokens that these drafted, and those that were kept
        self.ttft, self.itl = Percentiles(TTFT_SPAN), Percentiles(ITL_SPAN)
        self.running, self.waiting, self.used = Extremes(), Extremes(), Extremes()
        self.cpu, self.memory, self.gpu, self.gpu_memory = Extremes(), Extremes(), Extremes(), Extremes()
        self.target = Extremes()  # seconds that are set for ITL; NaN where none are
        self.tally = TallyIndex()
        self._held = array("d"), array("q")  # when each step ended, and the blocks in use then
        self.telemetry: Telemetry | None = None
        self._submitted = np.zeros(256)
        self._emitted = np.full(256, np.nan)  # by request: when it last gave a token

    def feed(self, records: list[Record], tally: TallyIndex) -> None:
        """The next records, which the tally knows already."""
        self.tally = tally
        for record in records:
            match record:
                case Step():
                    self._step(record)
                    self._count(record.ended, tally)
                case Ended():
                    self._count(record.time, tally)
                case Submitted():
                    self._grow(record.request)
                    self._submitted[record.request] = record.time
                    self._count(record.time, tally)
                case Telemetry():
                    self._telemetry(record)
                case Header():
                    self.blocks, self.cores = record.blocks, record.machine.cores
                    self.target.add(0.0, record.config.target_itl or np.nan)
                case Steered():
                    self.target.add(record.time, record.target_itl or np.nan)

    def used_at(self, time: float) -> int | None:
        """Blocks in use after the latest step that had ended by then; None before the first."""
        step = bisect_right(self._held[0], time) - 1
        return self._held[1][step] if step >= 0 else None

    def rate(self) -> Array:
        """Output tokens a second at each bin: those of the last second."""
        span = round(RATE_SPAN / BIN)
        total = np.concatenate((np.zeros(span), np.cumsum(self.tokens[0], dtype=np.float64)))
        rate = (total[span:] - total[:-span]) / RATE_SPAN
        if len(rate) > 1 and int(self.now / BIN) == len(rate) - 1:
            rate[-1] = rate[-2]  # the open bin still fills
        return np.asarray(rate)

    def accepted_length(self) -> Array:
        """What a row that verified drafts brought on average, at each bin over the last second; NaN without any."""
        span = round(RATE_SPAN / BIN)
        totals = [np.concatenate((np.zeros(span), np.cumsum(self.drafts[i], dtype=np.float64))) for i in (0, 2)]
        rows, kept = (total[span:] - total[:-span] for total in totals)
        return np.divide(kept, rows, out=np.full(len(rows), np.nan), where=rows > 0) + 1

    def _grow(self, request: int) -> None:
        if request >= len(self._submitted):
            more = max(request + 1, 2 * len(self._submitted)) - len(self._submitted)
            self._submitted = np.concatenate((self._submitted, np.zeros(more)))
            self._emitted = np.concatenate((self._emitted, np.full(more, np.nan)))

    def _count(self, time: float, tally: TallyIndex) -> None:
        self.worked = max(self.worked, time)
        self.now = max(self.now, time)
        then = tally.at(time)
        self.running.add(time, then.running)
        self.waiting.add(time, then.waiting)

    def _step(self, step: Step) -> None:
        time = step.ended
        place = int(time / BIN)
        self.tokens.reach(place)
        self.tokens[0][place] += 0 if step.standing else len(step.token)
        if len(step.drafted):
            self.drafts.reach(place)
            counts = np.count_nonzero(step.drafted), step.drafted.sum(), step.accepted.sum()
            for column, count in enumerate(counts):
                self.drafts[column][place] += count
        used = self.blocks - step.free_blocks
        self.used.add(time, used)
        self._held[0].append(time)
        self._held[1].append(used)
        if not len(step.token):
            return
        # a row that emits several tokens in one step is one emission
        requests = np.unique(step.request[step.token_row])
        if step.standing:
            self._emitted[requests] = time
            return
        before = self._emitted[requests]
        self._emitted[requests] = time
        first = np.isnan(before)
        if first.any():
            self.ttft.add(time, time - self._submitted[requests[first]])
        if not first.all():
            self.itl.add(time, time - before[~first])

    def _telemetry(self, record: Telemetry) -> None:
        self.telemetry = record
        self.now = max(self.now, record.time)
        self.cpu.add(record.time, record.cpu_percent)
        self.memory.add(record.time, record.memory)
        if record.gpu_percent >= 0:
            self.gpu.add(record.time, record.gpu_percent)
            self.gpu_memory.add(record.time, record.gpu_memory)
