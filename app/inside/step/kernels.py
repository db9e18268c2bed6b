"""What the forward of a replayed step was spent on, kernel by kernel, and the least that this machine needs for each.
No Qt in here."""

from dataclasses import dataclass
from functools import cached_property

from app.language import digits, tr, trn
from app.words import bytes_words, duration
from engine.trace import Header, KernelTimes, Step, kernel_times

TITLES = {
    "decode_attention": tr("attention"),
    "store_kv": tr("storing K and V"),
    "rms_norm": tr("norms"),
    "rotate": tr("rotation"),
    "angles": tr("angles of rotation"),
    "lookup": tr("looking rows up"),
    "greedy": tr("likeliest tokens"),
    "act_mul": tr("gates"),
    "adapt": tr("adapters"),
    "convolution": tr("convolutions"),
    "delta_rule": tr("states"),
    "pointwise": tr("sums and scales"),
    "experts gate_up": tr("experts: gate, up"),
    "experts down": tr("experts: down"),
    "route": tr("choosing experts"),
    "sort": tr("sorting by expert"),
    "combine": tr("sums of experts"),
    "exchange": tr("exchange between ranks"),
    "share_rows": tr("sharing rows"),
    "product": tr("matrix products"),
}
SMALL = tr("small kernels")
LAYERS = "_proj"  # what is left out of a layer's name


@dataclass(frozen=True, slots=True)
class KernelLine:
    """One kernel, or the small ones together: `seconds` taken, and at the `least`, 0 where nobody counts that. `bound`:
    what sets the least, and how near it is, "memory 88 %"."""

    title: str
    seconds: float
    least: float
    memory: bool
    tip: str

    @property
    def bound(self) -> str:
        if not self.least:
            return ""
        share = f"{100 * self.least / max(self.seconds, 1e-12):.0f} %"
        return tr("memory {share}", share=share) if self.memory else tr("compute {share}", share=share)


class KernelLines:
    """Of one step, in the order in which they run in a layer, the small ones as one at the end."""

    def __init__(self, step: Step, header: Header | None) -> None:
        self._step, self._header = step, header

    @cached_property
    def _times(self) -> KernelTimes | None:
        return kernel_times(self._header, [self._step]) if self._header is not None else None

    @cached_property
    def each(self) -> list[KernelLine]:
        """Every kernel by itself."""
        times = self._times
        return [] if times is None else [self._line(times, i) for i in range(len(times.seconds))]

    @cached_property
    def shown(self) -> list[KernelLine]:
        lines, header, times = self.each, self._header, self._times
        if not lines or header is None or times is None:
            return []
        kernels = times.kernels
        large = [bool(w) or name == "decode_attention" for w, name in zip(kernels.weights, kernels.names)]
        small = [line for line, is_large in zip(lines, large) if not is_large]
        told = "\n".join(f"{line.title}: {duration(line.seconds)}" for line in small)
        rest = KernelLine(SMALL, sum(line.seconds for line in small), 0.0, False, told)
        return [*(line for line, is_large in zip(lines, large) if is_large), *([rest] if small else [])]

    def _line(self, times: KernelTimes, i: int) -> KernelLine:
        name, calls = times.kernels.names[i], times.kernels.calls[i]
        seconds, memory, compute = float(times.seconds[i]), float(times.memory[i]), float(times.compute[i])
        title = TITLES.get(name) or name.replace(LAYERS, "")
        told = trn("{title}: {time} in {count:,} call", "{title}: {time} in {count:,} calls", calls, title=title,
                   time=duration(seconds))  # fmt: skip
        if times.kernels.weights[i]:
            told += "\n" + tr("layers: {names}", names=name)
        if memory:
            size = bytes_words(round(float(times.bytes[i])))
            told += "\n" + tr("{bytes} are read or written: at least {time}", bytes=size, time=duration(memory))
        if compute:
            count = digits(f"{times.operations[i] / 1e6:,.0f}")
            told += "\n" + tr("{count} M operations: at least {time}", count=count, time=duration(compute))
        return KernelLine(title, seconds, max(memory, compute), memory >= compute, told)
