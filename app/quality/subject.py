"""Which model is compared with which, in which quantizations: what can be measured here, and what it takes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from app.language import tr
from app.quality.words import cache_words, scheme_words
from app.session.memory.estimate import RUNTIME, beside, room
from app.words import bytes_words
from engine import InvalidInput, ModelSpec
from engine.checkpoints import local_info
from engine.config import KV_DTYPES, SCHEMES
from engine.memory import Fit, fits
from engine.quality import origin_of

ROUNDED = "bfloat16"  # the way that is not quantized, only rounded
FORGETFUL = ("window-128", "window-128-0")  # caches that are offered too: with an answer's first tokens, and without


@dataclass(frozen=True, slots=True)
class Way:
    """One way to load the model that can be measured. `reason`: why it cannot be, with the remedy. `needed`: bytes that
    it takes. `asked`: measured only where a person ticks it."""

    key: str
    title: str
    sentence: str
    spec: ModelSpec
    reason: str = ""
    needed: int = 0
    cache: str = ""
    asked: bool = False


@dataclass(frozen=True, slots=True)
class Subject:
    """A model on show. `stored`: what it was quantized in beforehand, "" where it was not; `original` None: it is not
    known of what such a checkpoint was made. `problem`: why nothing of
    it can be measured. `dtype`, `needed` and `free`: the original's precision and bytes, and those of the memory;
    `runtime`: what a process takes of these beside a model."""

    spec: ModelSpec
    original: ModelSpec | None
    ways: tuple[Way, ...] = ()
    problem: str = ""
    stored: str = ""
    dtype: str = ""
    needed: int = 0
    free: int = 0
    runtime: int = RUNTIME

    @property
    def key(self) -> tuple[str, str | None]:
        return self.spec.source, self.spec.revision

    def need(self, keys: Sequence[str]) -> int:
        """Bytes that measuring these takes at most: one after another is in memory."""
        return max([self.needed, *(way.needed for way in self.ways if way.key in keys)]) + self.runtime


def examine(spec: ModelSpec, original: ModelSpec | None = None) -> Subject:
    """What of a model can be compared with what. `original`: what a checkpoint was quantized from, where a person
    says so. Blocks on disk; never raises."""
    memory = room(spec.device)
    free, plain, stored = memory.free, replace(spec, quantization="none", dtype="auto"), ""
    try:
        info = local_info(plain)
        stored = info.stored_as
        if stored:
            (checkpoint,) = fits(info, memory, quantizations=[stored])
            original = original or (origin_of(info.folder) if info.folder is not None else None)
            if original is None:
                return Subject(plain, None, stored=stored, free=free)
            original = replace(original, device=spec.device)
            info = local_info(original)
        else:
            original = plain
        bills = {bill.quantization: bill for bill in fits(info, memory)}
        if stored:
            bills[stored] = checkpoint
    except (InvalidInput, OSError) as error:
        return Subject(plain, original, problem=str(error), stored=stored, free=free)
    own = bills["none"]
    problem = own.available
    if not problem and not own.fits:
        problem = tr(
            "The original takes {needed}, and {free} are free: give memory back (unload the model on the Play page, "
            "close other programs), or choose a smaller model.",
            needed=bytes_words(own.weights + own.activations),
            free=bytes_words(free),
        )
    ways = []
    for key, bill in bills.items():
        own_spec = plain if stored and key == stored else replace(original, quantization=key)
        if key != "none":
            ways.append(_way(key, own_spec, bill, free))
    if own.dtype != ROUNDED:
        rounded = fits(info, memory, dtype=ROUNDED, quantizations=["none"])[0]
        way = _way("none", replace(original, dtype=ROUNDED), rounded, free)
        words = tr("the original's weights rounded to bfloat16: what 16 bits alone cost")
        ways.append(replace(way, key=ROUNDED, title=f"none, {ROUNDED}", sentence=words))
    for cache in (*KV_DTYPES[1:], *FORGETFUL):
        way, words = _way("none", original, own, free), cache_words(cache)
        way = replace(way, key=f"kv-{cache}", title=f"KV {cache}", sentence=words, cache=cache)
        ways.append(replace(way, asked=cache in FORGETFUL))
    needed = own.weights + own.activations
    return Subject(plain, original, tuple(ways), problem, stored, own.dtype, needed, free, beside(memory.runtime))


def _way(key: str, spec: ModelSpec, bill: Fit, free: int) -> Way:
    needed, reason = bill.weights + bill.activations, bill.available
    if not reason and needed > free:
        reason = tr("takes {needed}, and {free} are free", needed=bytes_words(needed), free=bytes_words(free))
    return Way(key, SCHEMES[key].title, scheme_words(key), spec, reason, needed)
