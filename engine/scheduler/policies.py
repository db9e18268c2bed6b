"""The batching modes: who may join a step, and how many tokens each gets. One small class a mode."""

from typing import Protocol

from engine.config.specs import EngineConfig
from engine.scheduler.contiguous import CachelessLayout, ContiguousLayout
from engine.scheduler.ledger import Ledger
from engine.scheduler.paged import PagedLayout
from engine.scheduler.plan import Refused, Row, StepPlan
from engine.trace.records import Refusal


class KVLayout(Protocol):
    """Where running branches keep K and V: gives them memory and makes them rows."""

    def seal(self, rows: list[Row], refused: Refused) -> StepPlan:
        """The plan of these rows, with what the runner must know of the memory."""

    def use(self) -> tuple[int, int, int]:
        """Owned tokens: used, reserved, internal."""


class Policy(Protocol):
    """`leave_together`: finished branches keep slot and memory until all that run are finished."""

    leave_together: bool

    def plan(self, now: float) -> tuple[list[Row], Refused]:
        """The rows of the next step at `now`, and the head of the queue with the reason why it did not join."""

    def patience(self, now: float) -> float | None:
        """Seconds until the passing of time alone may change the plan; None when it cannot."""


class _Untimed:
    leave_together = False

    def patience(self, now: float) -> float | None:
        return None


class Continuous(_Untimed):
    """Requests join and leave at every step. Prefill steps and decode steps take turns while there is work for both,
    so that neither starves: new requests join after every `join_every` decode steps."""

    def __init__(self, config: EngineConfig, ledger: Ledger, layout: PagedLayout | ContiguousLayout) -> None:
        self._config, self._ledger, self._layout = config, ledger, layout
        self._decodes = config.join_every  # steps since the last prefill

    def plan(self, now: float) -> tuple[list[Row], Refused]:
        ledger, every = self._ledger, self._config.join_every
        if self._decodes < every:
            rows = self._layout.decode_rows()
            if rows:
                self._decodes += 1
                return rows, ledger.refuse(Refusal.DECODE_TURN if every == 1 else Refusal.JOIN_TURN)
        rows, refused = self._layout.prefill_rows(ledger.limits.of_prompts())
        if rows:
            self._decodes = 0
            return rows, refused
        return self._layout.decode_rows(), refused


class Chunked(_Untimed):
    """Decodes and chunks of prompts share every step's token budget; decodes first, so that no prompt stalls them."""

    def __init__(self, config: EngineConfig, ledger: Ledger, layout: PagedLayout) -> None:
        self._config, self._ledger, self._layout = config, ledger, layout
        self._since = config.join_every

    def plan(self, now: float) -> tuple[list[Row], Refused]:
        decodes = self._layout.decode_rows()
        joins = self._since >= self._config.join_every or not decodes
        budget = self._ledger.limits.of_prompts(sum([row.count for row in decodes]))
        prompts, refused = self._layout.prefill_rows(budget, admit=joins)
        self._since = 1 if joins else self._since + 1
        return decodes + prompts, refused if joins else self._ledger.refuse(Refusal.JOIN_TURN)


class Disaggregated(_Untimed):
    """A prefill worker computes prompts while decode steps follow each other: neither waits for the other's work. Who
    joins is decided when the worker is free; `refused` is who did not, and why."""

    def __init__(self, ledger: Ledger, layout: PagedLayout) -> None:
        self._ledger, self._layout = ledger, layout
        self.refused: Refused = ()

    def plan(self, now: float) -> tuple[list[Row], Refused]:
        head = self._ledger.head()
        waits = head is not None and [head.request.id] == [request for request, _ in self.refused]
        return self._layout.decode_rows(), self.refused if waits else ()

    def prompts(self) -> list[Row]:
        """What the worker computes next."""
        rows, self.refused = self._layout.prefill_rows(self._ledger.limits.of_prompts())
        return rows


class Batches:
    """Static and dynamic: a batch joins together, and leaves together when its last row ends.

    A batch starts when it is full. A static one also when no other requests are to follow; a dynamic one (`wait` in
    seconds) when its first request has waited so long. Sequential is a batch of one.
    """

    leave_together = True

    def __init__(self, ledger: Ledger, layout: ContiguousLayout, wait: float | None) -> None:
        self._ledger, self._layout, self._wait = ledger, layout, wait

    def plan(self, now: float) -> tuple[list[Row], Refused]:
        ledger = self._ledger
        if ledger.running:
            return self._layout.decode_rows(), ledger.refuse(Refusal.BATCH_RUNS)
        full = ledger.waiting_count >= min(ledger.slots, ledger.limits.running)
        if not full and (ledger.more if self._wait is None else (self.patience(now) or 0) > 0):
            return [], ledger.refuse(Refusal.BATCH_FILLS)
        return self._layout.prefill_rows(ledger.limits.prompts)

    def patience(self, now: float) -> float | None:
        if self._wait is None or self._ledger.running:
            return None
        oldest = self._ledger.waiting.oldest()
        return max(0.0, oldest.request.arrived + self._wait - now) if oldest is not None else None


class Recompute(_Untimed):
    """One request at a time and no cache: every step computes its whole sequence again."""

    def __init__(self, ledger: Ledger, layout: CachelessLayout) -> None:
        self._ledger, self._layout = ledger, layout

    def plan(self, now: float) -> tuple[list[Row], Refused]:
        if not self._ledger.running and self._ledger.head() is not None:
            self._ledger.admit()
        return self._layout.rows(), self._ledger.refuse(Refusal.NO_SLOT)


def make(config: EngineConfig, ledger: Ledger) -> tuple[Policy, KVLayout]:
    """The policy of the config's mode, and the KV layout it works in."""
    match config.mode:
        case "recompute":
            cacheless = CachelessLayout(ledger)
            return Recompute(ledger, cacheless), cacheless
        case "sequential" | "static" | "dynamic":
            contiguous = ContiguousLayout(ledger, aligned=True)
            return Batches(ledger, contiguous, config.longest_wait if config.mode == "dynamic" else None), contiguous
        case "continuous-padded":
            contiguous = ContiguousLayout(ledger, aligned=False)
            return Continuous(config, ledger, contiguous), contiguous
        case "disaggregated":
            apart = PagedLayout(ledger, config, apart=True)
            return Disaggregated(ledger, apart), apart
        case "continuous" | "chunked":
            paged = PagedLayout(ledger, config)
            return (Continuous if config.mode == "continuous" else Chunked)(config, ledger, paged), paged
        case mode:
            raise AssertionError(f"no policy for mode {mode!r}")
