"""What holds of every record of a run, so that views need not ask: a file may be damaged, or made to do harm."""

import math
import types
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import fields, is_dataclass
from functools import cache
from operator import le
from typing import Any, Union, cast, get_args, get_origin, get_type_hints

import numpy as np

from engine.config.adapters import MOST as MOST_ADAPTERS
from engine.config.adapters import NAME
from engine.config.parallel import MOST_MICRO, MOST_RANKS
from engine.trace.column import Array
from engine.trace.records.codec import Record
from engine.trace.records.events import Steered
from engine.trace.records.header import Header
from engine.trace.records.request import Ended, PromptScored, Submitted
from engine.trace.records.step import BlockEvent, Fate, Kind, Refusal, Step, SwapEvent

Fits = Callable[[Any], bool]
MOST = 1 << 24  # blocks of a pool, positions of a request, slots
LATEST = 1e9  # seconds
ROWS = ("branch", "slot", "first", "count", "kind", "wasted", "padding", "reused")
TOGETHER = (  # columns of one length
    ("request", *ROWS),
    ("token", "token_row", "logprob", "text_end"),
    ("alt_token", "alt_token_index", "alt_logprob", "alt_text"),
    ("draft_token", "draft_text"),
    ("allowed", "allowed_token_index"),
    ("rather_token", "rather_token_index", "rather_logprob", "rather_text"),
    ("attended_token_index", "attended_context", "attended_end"),
    ("block", "block_event", "block_request", "block_branch", "block_place"),
    ("copied", "copied_to"),
    ("swap_event", "swap_host", "swap_block", "swap_request", "swap_branch", "swap_place"),
    ("refused", "refused_reason"),
    ("preempted", "preempted_branch"),
    ("rank_computing", "rank_communicating", "rank_waiting", "rank_bytes"),
    ("micro_begun", "micro_ended"),
    ("beam_request", "beam_parent", "beam_branch", "beam_token", "beam_score", "beam_fate", "beam_text"),
)
COMES = (BlockEvent.TAKEN, BlockEvent.SHARED)
PLAIN = {"count", "first", "wasted", "padding", "reused"}  # of `ROWS`, what counts tokens


class RecordCheck:
    """Takes the records of one run in order. Raises ValueError naming the first thing that cannot be."""

    def __init__(self) -> None:
        self._header: Header | None = None
        self._samples: dict[int, int] = {-1: 0}  # how many each request has; -1 stands for none
        self._over: set[tuple[int, int]] = set()
        self._held: Counter[tuple[int, int]] = Counter()  # blocks of each owner

    def __call__(self, record: Record) -> None:
        name = type(record).__name__
        for field, fits in _fields(type(record)):  # type: ignore[arg-type]
            if not fits(getattr(record, field)):
                raise ValueError(f"{name}.{field} cannot be {getattr(record, field)!r:.40}")
        _expect((self._header is None) is isinstance(record, Header), "a second header, or none at the start,")
        times = (getattr(record, f, 0.0) for f in ("time", "started", "ended"))
        _expect(all(abs(time) < LATEST for time in times), f"{name}'s time")
        match record:
            case Header():
                slots = record.config.slots
                ranks = len(record.rank_devices)
                _expect(0 <= record.micro_batches <= MOST_MICRO, "micro-batches of that number")
                _expect(
                    len(record.rank_layers) in (0, ranks) and min(record.rank_layers, default=1) > 0, "layers of each"
                )
                _expect(len(record.rank_weights) == ranks != 1 and ranks <= MOST_RANKS, "ranks of that number")
                _expect(len(record.rank_kv) in (0, ranks), "a pool of each rank")
                _expect(
                    max(record.blocks, record.host_blocks, slots, record.config.block_size) <= MOST,
                    "a pool of that size",
                )
                roof = record.roof
                if roof is not None:
                    sizes = roof.working_sets
                    _expect(0 < len(sizes) == len(roof.bandwidths) and min(sizes) > 0, "the roof's working sets")
                kernels = record.kernels
                if kernels is not None:
                    columns = kernels.calls, kernels.weights, kernels.bytes, kernels.drawn
                    _expect({len(kernels.names)} == set(map(len, columns)), "columns of kernels")
                    _expect(min((*kernels.calls, *kernels.weights, *kernels.bytes), default=0) >= 0, "kernels below 0")
                card = record.model
                _expect(min((card.experts, *card.expert_layers)) >= 0, "a layer with experts below 0")
                _expect(len(card.expert_layers) * card.experts <= MOST, "experts of that number")
                _expect(len(card.adapters) == len(card.adapter_ranks), "a rank of each adapter")
                _expect(all(map(NAME.fullmatch, card.adapters)), "an adapter's name")
                _expect(len(set(card.adapters)) == len(card.adapters) <= MOST_ADAPTERS, "adapters of that number")
                between = record.interconnect
                if between is not None:
                    _expect(0 < len(between.messages) == len(between.rates), "messages between ranks")
                    _expect(min(*between.messages, *between.rates) > 0, "a rate between ranks")
                self._header = record
            case Submitted():
                fresh = record.request not in self._samples and record.request < MOST
                _expect(fresh, f"another request {record.request}")
                _expect(len(record.token_text) in (0, len(record.token_ids)), "a prompt's tokens")
                self._samples[record.request] = record.params.branches
            case Step():
                self._step(record)
            case Ended():
                self._owners("sample", np.array([record.request]), np.array([record.branch]), 0)
                _expect((record.request, record.branch) not in self._over, f"the end of request {record.request}")
                self._over.add((record.request, record.branch))
                _expect(len(record.token) == len(record.logprob) == len(record.text_end), "a batch's tokens")
                _ascends("text_end", record.text_end, len(record.text) + 1)
            case PromptScored():
                self._owners("prompt", np.array([record.request]), np.array([0]), 0)
                told = len(record.token) - 1
                _expect(len(record.logprob) == told == len(record.text_end) - 1, "a prompt's tokens")
                _expect(len(record.alt_token) == told * record.alternatives == len(record.alt_logprob), "alternatives")
                _ascends("text_end", record.text_end, len(record.text) + 1)
            case Steered():
                least = min(record.token_budget, record.max_running)
                known = 0 <= record.target_itl < math.inf
                _expect(known and 0 < record.prefill_share <= 1 <= least, "a budget of that size")
            case _:
                pass

    def _step(self, step: Step) -> None:
        assert self._header is not None
        config, blocks = self._header.config, self._header.blocks
        slots = max(config.slots, 1)
        for names in TOGETHER:
            lengths = {len(getattr(step, name)) for name in names}
            optional = names[0] in ("preempted", "request")  # columns that older traces left out
            _expect(len(lengths) == 1 or (optional and len(lengths - {0}) == 1), f"columns {', '.join(names)}")
        _expect(step.started <= step.ended and step.step >= 0, f"step {step.step}'s span")
        _expect(min(step.running, step.waiting, step.free_blocks, step.cached_blocks) >= 0, "a count below 0")
        for name in PLAIN:
            _within(name, getattr(step, name), 0, MOST)
        _within("position", step.first + step.count.astype(np.int64), 0, MOST)
        _within("kind", step.kind, 0, len(Kind))
        _within("slot", step.slot, -1, slots)
        _within("block_event", step.block_event, 0, len(BlockEvent))
        for name in ("block", "copied", "copied_to"):
            _within(name, getattr(step, name), 0, blocks)
        places = max(blocks, 1) if config.kv_window is None else MOST  # a table that forgets outgrows the pool
        _within("block_place", step.block_place, -1, places)
        for name in ("alt_token_index", "allowed_token_index", "rather_token_index", "attended_token_index"):
            _within(name, getattr(step, name), 0, len(step.token))
        _within("swap_event", step.swap_event, 0, len(SwapEvent) if config.offload_prefixes else SwapEvent.OFFLOADED)
        _within("swap_host", step.swap_host, 0, self._header.host_blocks)
        _within("swap_block", step.swap_block, -1, blocks)
        nobodys = (step.swap_event == SwapEvent.OFFLOADED) | (step.swap_event == SwapEvent.FORGOTTEN)
        _within("swap_place", step.swap_place[~nobodys], 0, places)
        for column in (step.swap_place, step.swap_request, step.swap_branch):
            _expect(bool((column[nobodys] == -1).all()), "an owner of an offloaded prefix")
        _expect(
            bool((step.swap_block[step.swap_event == SwapEvent.FOUND] >= 0).all()), "a prefix that came to no block"
        )
        _ascends("token_row", step.token_row, step.rows)
        _ascends("text_end", step.text_end, len(step.text) + 1)
        _expect(len(step.drafted) in (0, step.rows) and len(step.accepted) == len(step.drafted), "drafts of each row")
        _within("drafted", step.drafted, 0, MOST)
        _expect(len(step.forgotten) in (0, step.rows), "what each row's cache had forgotten")
        _expect(
            bool((step.forgotten >= 0).all() and (step.lies_at >= 0).all()), "more that is forgotten than was there"
        )
        _expect(bool((step.accepted >= 0).all() and (step.accepted <= step.drafted).all()), "drafts that were kept")
        _expect(int(step.drafted.sum(dtype=np.int64)) == len(step.draft_token), "a token of each draft")
        _expect(0 <= step.beside <= step.rows, "rows of a prefill worker")
        _expect(len(step.rank_bytes) in (0, len(self._header.rank_devices)), "times of each rank")
        kernels = self._header.kernels
        _expect(len(step.kernel) in (0, len(kernels.names) if kernels is not None else 0), "times of each kernel")
        _expect(bool((step.kernel >= 0).all()), "kernel below 0")
        card = self._header.model
        _expect(len(step.expert) in (0, len(card.expert_layers) * card.experts), "tokens of each expert")
        _within("expert", step.expert, 0, MOST)
        if len(step.attended_end):
            self._attended(step)
        told, most = len(step.micro_begun), len(step.rank_bytes) * MOST_MICRO
        _expect(not told or (told <= most and not told % len(step.rank_bytes)), "micro-batches of each rank")
        _expect(bool((step.micro_begun <= step.micro_ended).all()), "a micro-batch's span")
        for name in ("rank_computing", "rank_communicating", "rank_waiting", "rank_bytes"):
            _expect(bool((getattr(step, name) >= 0).all()), f"{name} below 0")
        self._owners("row", step.request, step.branch, 0)
        self._owners("block's owner", step.block_request, step.block_branch, -1)
        self._owners("preempted", step.preempted, step.preempted_branch, 0)
        self._owners("beam", step.beam_request, step.beam_parent, 0)
        self._owners("beam", step.beam_request, step.beam_branch.clip(0), 0)
        _within("beam_branch", step.beam_branch, -1, MOST)
        _within("beam_fate", step.beam_fate, 0, len(Fate))
        self._owners("swapped", step.swap_request[~nobodys], step.swap_branch[~nobodys], 0)
        self._owners("refused", step.refused, step.refused[:0], 0)
        _expect(set(step.refused_reason) <= set(Refusal), "a reason of a refusal")
        owners = zip(step.block_request.tolist(), step.block_branch.tolist())
        for event, owner in zip(step.block_event.tolist(), owners):
            self._held[owner] += 1 if event in COMES else -1
            _expect(self._held[owner] >= 0 or owner[0] < 0, f"block that request {owner[0]} gives back and has not")

    def _attended(self, step: Step) -> None:
        """Each token's part is of as many layers as the model has, and of all heads or their mean."""
        assert self._header is not None
        card = self._header.model
        _expect(step.attended.dtype == np.uint8, "weights that are no codes")
        _within("attended_context", step.attended_context, 1, MOST)
        begin = 0
        for context, end in zip(step.attended_context.tolist(), step.attended_end.tolist()):
            least = context * len(card.attention_layers)
            _expect(end - begin in (least, least * card.heads), "what a token attended to")
            begin = end
        _expect(begin == len(step.attended), "what tokens attended to")

    def _owners(self, what: str, requests: Array, samples: Array, least: int) -> None:
        ids = requests.tolist()
        _expect(all(i in self._samples and i >= least for i in ids), f"{what} of a request that was not submitted")
        if len(samples):
            _within(what, samples, least, max((self._samples[i] for i in ids), default=0))


def _expect(holds: bool, what: str) -> None:
    if not holds:
        raise ValueError(f"{what} cannot be")


def _within(what: str, values: Array, low: int, end: int) -> None:
    if len(values):
        numbers = values.tolist()  # quicker than NumPy for the dozens that a step has
        _expect(min(numbers) >= low and max(numbers) < end, f"{what} outside its bounds")


def _ascends(what: str, values: Array, end: int) -> None:
    _within(what, values, 0, end)
    numbers = values.tolist()
    _expect(all(map(le, numbers, numbers[1:])), f"{what} out of order")


@cache
def _fields(cls: Hashable) -> list[tuple[str, Fits]]:
    hints = get_type_hints(cls)
    return [(f.name, _fits(hints[f.name])) for f in fields(cast("Any", cls))]


@cache
def _fits(hint: Any) -> Fits:
    """Whether a value is of the annotated type, all through; numbers are finite (a logarithm in a column may be that of
    0), and whole ones fit in 64 bits."""
    origin, inner = get_origin(hint), [_fits(one) for one in get_args(hint) if one is not ...]
    if origin in (Union, types.UnionType):
        return lambda value: any(fits(value) for fits in inner)
    if origin is np.ndarray:
        return lambda value: value.dtype.kind in "iu" or (value.dtype.kind == "f" and bool((value < np.inf).all()))
    if origin is tuple and ... in get_args(hint):
        return lambda value: isinstance(value, tuple) and all(map(inner[0], value))
    if origin is tuple:
        return lambda value: (
            isinstance(value, tuple) and len(value) == len(inner) and all(fits(v) for fits, v in zip(inner, value))
        )
    if origin is dict:
        key, one = inner
        return lambda value: type(value) is dict and all(map(key, value)) and all(map(one, value.values()))
    if hint is float:
        return lambda value: (
            (type(value) is float and math.isfinite(value)) or (type(value) is int and abs(value) < 1 << 63)
        )
    if hint is int:
        return lambda value: type(value) is int and abs(value) < 1 << 63
    if is_dataclass(hint):
        return lambda value: type(value) is hint and all(fits(getattr(value, name)) for name, fits in _fields(hint))  # type: ignore[arg-type]
    return lambda value: isinstance(value, hint)
