"""Submissions on their way in: checked, tokenized, numbered; all on the caller's thread."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np

from engine.config.checks import check, shown
from engine.config.sampling_params import SamplingParams
from engine.config.specs import COLOCATED_MODES, PAGED_MODES, EngineConfig, InvalidInput
from engine.config.submission import Submission
from engine.core.intake.prompts import PromptEncoder
from engine.core.intake.resumption import ends, resume
from engine.core.stream import StreamRouter, Ticket
from engine.core.tracing.prompt_record import prompt_record
from engine.decoding.beams import BeamSearch, Path
from engine.decoding.constraints import Grammars
from engine.decoding.output import Output
from engine.decoding.token_rules import token_rules
from engine.models.loading import LoadedModel
from engine.scheduler import beams
from engine.scheduler.block_pool import BlockPool, blocks_for
from engine.scheduler.kv_window import KvWindow
from engine.scheduler.prompt_scores import PromptScores
from engine.scheduler.request import Branch, Request
from engine.trace.records import PromptScored, Record, Submitted, freeze
from engine.trace.thoughts import begins_amid

PART = "\N{REPLACEMENT CHARACTER}"  # what stands for a token of bytes that are no character yet


@dataclass(frozen=True, slots=True)
class Prepared:
    """A checked and tokenized submission, ready for the engine's thread, on the trace it was checked for."""

    request: Request
    record: Submitted
    router: StreamRouter
    told: PromptScored | None = None  # of a prompt of one token, which nothing is to be computed of

    @property
    def records(self) -> tuple[Record, ...]:
        """Those that are there before a step is: of a request that began elsewhere, also the ends of its samples."""
        told = () if self.told is None else (self.told,)
        return self.record, *told, *ends(self.request, self.record.time)

    @property
    def ticket(self) -> Ticket:
        request = self.request
        amid = begins_amid(self.record.text, request.params)
        return Ticket(request.id, self.record.time, request.prompt_length, request.params.branches, amid)


class Intake:
    """Takes submissions for one trace that began at `origin` (of `time.perf_counter`), and numbers them from 0.
    `grammars` are the model's: it outlives the trace."""

    def __init__(
        self,
        model: LoadedModel,
        config: EngineConfig,
        pool: BlockPool,
        router: StreamRouter,
        origin: float,
        grammars: Grammars,
    ) -> None:
        self._config, self._card, self._eos = config, model.card, model.eos
        self._pool, self._router, self._origin, self._ids = pool, router, origin, count()
        self._window = KvWindow.of(config)
        self._detokenizers, self._whole = model.detokenizers, model.group is None
        self.encode = PromptEncoder(model.tokenizer, model.card)
        self._grammars = grammars
        self._unseeded = 0

    def __call__(self, submissions: Sequence[Submission]) -> list[Prepared]:
        """All of them or none: raises InvalidInput naming the first that cannot be taken."""
        return [self._prepare(submission) for submission in submissions]

    def _prepare(self, submission: Submission) -> Prepared:
        now = (submission.time if submission.time is not None else time.perf_counter()) - self._origin
        params = submission.params
        if params.branches > 1 and not self._config.paged:
            what, which = ("samples", "n") if params.n > 1 else ("beams", "beam_width")
            raise InvalidInput(
                f"{which}={params.branches}: mode {self._config.mode!r} has no blocks that {what} could share; "
                f"use one of {', '.join(PAGED_MODES)}, or {which}=1"
            )
        if params.prompt_logprobs is not None and not self._config.paged:
            raise InvalidInput(
                f"prompt_logprobs={params.prompt_logprobs}: mode {self._config.mode!r} computes a prompt for its last "
                f"token alone; use one of {', '.join(COLOCATED_MODES)}, or leave it out"
            )
        if self._config.disaggregated:
            _refuse_apart(params)
        ranks = "each rank of a model that is split sees a part of it alone; load it on one device, or leave it out"
        check(self._whole or not params.attention, "attention", params.attention, ranks)
        whole = "a beam search needs the whole cache, and this one forgets; leave it at 1, or kv_window out"
        check(params.beam_width == 1 or self._config.kv_window is None, "beam_width", params.beam_width, whole)
        paths = "a beam search goes on from one path with several, and layers of this model keep a state of one; use 1"
        check(params.beam_width == 1 or not self._card.state_layers, "beam_width", params.beam_width, paths)
        prompt = self.encode(submission.prompt)
        length = len(prompt.ids)
        limit = self._limit(length, params)
        rules = token_rules(params, self.encode.plain, self._eos, self._card.vocabulary)
        matchers = self._grammars.matchers(params, params.branches)
        adapter = self._adapter(params.adapter)
        request = Request(next(self._ids), length, params, limit, self._seed(params), now, rules=rules, adapter=adapter)
        request.label = submission.whose
        if params.prompt_logprobs is not None:
            request.scores = PromptScores(prompt.ids, params.prompt_logprobs, self._card.vocabulary)
        for index, matcher in enumerate(matchers):
            output = Output(self._detokenizers(), params, self._eos, limit, matcher)
            request.branches.append(Branch(request, list(prompt.ids), output, index, matcher=matcher))
        if submission.said:
            resume(request, submission.said, self._config, self._card.vocabulary)
        if params.beam_width > 1:
            self._search(request)
        ids, pieces = freeze(np.array(prompt.ids, np.int32)), self._pieces(prompt.ids) if params.attention else ()
        record = Submitted(now, request.id, prompt.text, ids, params, prompt.messages, submission.label, pieces)
        told = prompt_record(request, self._detokenizers, now) if request.scores and request.scores.whole else None
        return Prepared(request, record, self._router, told)

    def _pieces(self, ids: Sequence[int]) -> tuple[str, ...]:
        """What each token adds to the text of those before it; special tokens their names."""
        said, piece = self._detokenizers.plain(), self._detokenizers.piece
        parts = [said.push(token) or piece(token).replace(PART, "") for token in ids]
        return *parts[:-1], parts[-1] + said.flush()

    def _search(self, request: Request) -> None:
        """Makes it a beam search, one that fits."""
        params, pool, ends = request.params, self._pool, frozenset() if request.params.ignore_eos else self._eos

        def ended(path: Path) -> bool:
            if path.token in ends or path.length >= request.limit:
                return True
            output = Output(self._detokenizers(), params, ends, request.limit) if params.stop else None
            return output is not None and any(output.push(token)[1] is not None for token in path.tokens)

        width, rules = params.beam_width, (params.length_penalty, params.early_stopping)
        beams.begin(request, BeamSearch(width, *rules, request.limit, ended, len(ends)))
        if width > self._config.slots:
            raise InvalidInput(
                f"beam_width={width}: beams run together, and at most {self._config.slots} rows do; "
                "lower beam_width, or raise max_running"
            )
        if request.ranked > self._card.vocabulary:
            raise InvalidInput(
                f"beam_width={width}: the model knows {self._card.vocabulary} tokens, too few; lower beam_width"
            )
        needed = beams.most_blocks(request, pool.block_size)
        if needed > pool.total:
            raise InvalidInput(
                f"beam_width={width} with max_tokens={params.max_tokens:,}: its beams may need {needed:,} blocks, and "
                f"the KV pool has {pool.total:,}; lower beam_width or max_tokens, or give the pool more memory"
            )

    def _adapter(self, name: str) -> int:
        """Its number, from 1; of no name 0."""
        if not name:
            return 0
        names = self._card.adapters
        if name not in names:
            has = f"has {', '.join(names)}; name one of these" if names else "was loaded without any; load it with some"
            raise InvalidInput(f"adapter={shown(name)}: {self._card.name} {has}, or leave it out")
        return 1 + names.index(name)

    def _seed(self, params: SamplingParams) -> int:
        """A request without a seed gets one from the engine's and its number in the trace, so that a run repeats."""
        if params.seed is not None:
            return params.seed
        self._unseeded += 1
        return (self._config.seed << 32) + self._unseeded

    def _limit(self, length: int, params: SamplingParams) -> int:
        """The most tokens a branch may generate: what it asked for, within the model's context."""
        context = self._card.context
        limit = min(params.max_tokens, context - length) if context else params.max_tokens
        pool = self._pool
        keeps = self._config.mode != "recompute"
        tokens, window = length + limit - 1, self._window
        most = blocks_for(tokens, pool.block_size) if window is None else window.most(length, tokens)
        if keeps and most > pool.total:
            raise InvalidInput(
                f"prompt of {length:,} tokens with max_tokens={params.max_tokens:,}: the whole KV pool holds "
                f"{pool.total * pool.block_size:,} tokens; lower max_tokens, shorten the prompt or "
                "give the pool more memory"
            )
        return limit


def _refuse_apart(params: SamplingParams) -> None:
    """Raises InvalidInput for what a prompt that is computed elsewhere does not bring."""
    for name, plain in (("beam_width", 1), ("prompt_logprobs", None)):
        if (value := getattr(params, name)) != plain:
            why = "mode 'disaggregated' computes prompts in another process, which tells of their K and V alone"
            raise InvalidInput(f"{name}={value}: {why}; use continuous or chunked, or leave it out")
