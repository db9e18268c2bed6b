"""What an engine offers, whichever process it runs in."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Self, Unpack

from engine.config.live_budget import BudgetChanges, LiveBudget
from engine.config.sampling_params import SamplingParams
from engine.config.specs import EngineConfig
from engine.config.submission import Prompt, Submission
from engine.core.run import Run
from engine.core.stream import Stream
from engine.trace.records import ModelCard
from engine.trace.trace import Trace
from engine.workloads.workload import Workload


class EngineFace(ABC):
    """`Engine` and `EngineProcess`. `alive` turns False when it ends by itself, and `error` says why; `restart`: what
    ended it is mended by loading again at once; `lost`: no engine can use its GPU in this process any more; `stacks`:
    where its process was when that aborted."""

    config: EngineConfig
    card: ModelCard
    alive = True
    error = stacks = ""
    restart = lost = False
    trace: Trace

    @property
    @abstractmethod
    def budget(self) -> LiveBudget:
        """What a step may compute: what the config has, or what `steer` has set since the trace began."""

    @property
    def pool_tokens(self) -> int:
        """Tokens whose K and V one request could have, if all of a pool's blocks were its own."""
        return self.trace.header.blocks * self.trace.header.config.block_size

    @abstractmethod
    def submit_many(self, submissions: Sequence[Submission], more: bool = False) -> list[Stream]:
        """Queues several at once, or none: raises InvalidInput naming the first that cannot be taken. `more` says that
        others follow without waiting for these to end: a static batch then waits until it is full."""

    @abstractmethod
    def cancel(self, requests: Iterable[int] | None = None, trace: Trace | None = None) -> None:
        """Ends these requests, or all, at the next step's border. Ids that are over already are passed by. Every trace
        counts its requests from 0: with `trace`, nothing is done when that is no longer the engine's."""

    @abstractmethod
    def steer(self, **changes: Unpack[BudgetChanges]) -> LiveBudget:
        """Sets what a step may compute from the next one on, until another trace begins. Where more run than may, those
        admitted last are preempted (paged modes; by priority those of the highest numbers), or nobody joins until fewer
        do. Returns what is in force then. Raises InvalidInput for more than the config has. Never waits for a step."""

    @abstractmethod
    def begin(self, config: EngineConfig) -> Trace:
        """A fresh trace under `config`, on the same weights, with an empty pool. Raises InvalidInput while requests
        run, and for a config that does not fit; the one before then stays."""

    @abstractmethod
    def close(self) -> None:
        """Ends all requests as cancelled, then the engine and its hold on memory; the trace stays. Idempotent."""

    @abstractmethod
    def encode(self, prompt: Prompt) -> list[int]:
        """The token ids that the model is given for a prompt. Raises InvalidInput where it would not be taken."""

    @abstractmethod
    def decode(self, tokens: Sequence[int]) -> str:
        """The text of these token ids. Raises InvalidInput for one that the model does not know."""

    @abstractmethod
    def pieces(self, tokens: Sequence[int]) -> list[str]:
        """Each token's text by itself, special tokens by their names; a byte that is no character reads as U+FFFD."""

    def submit(self, prompt: Prompt, params: SamplingParams | None = None, label: str = "") -> Stream:
        """Queues one prompt: text, token ids or chat messages. Never waits for the model; safe from any thread."""
        return self.submit_many([Submission(prompt, params or SamplingParams(), label=label)])[0]

    def run(self, workload: Workload, config: EngineConfig | None = None) -> Run:
        """Starts a workload on a fresh trace, warmed up and idle; returns at once."""
        trace = self.begin(config or self.config)
        return Run(workload, trace, self.submit_many, lambda requests: self.cancel(requests, trace))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
