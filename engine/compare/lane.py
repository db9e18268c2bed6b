"""A lane of a comparison: a model and a way of batching."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from engine.checkpoints.adapters import with_shipped
from engine.compare.remote import Server
from engine.config.checks import shown
from engine.config.specs import EngineConfig, InvalidInput, ModelSpec

if TYPE_CHECKING:
    from engine.workloads.workload import Workload

MODE_TITLES = {
    "recompute": "One at a time, no cache",
    "sequential": "One at a time",
    "static": "Static batch",
    "dynamic": "Dynamic batch",
    "continuous-padded": "Continuous, padded",
    "continuous": "Continuous, paged",
    "chunked": "Chunked prefill, paged",
    "disaggregated": "Disaggregated prefill, paged",
}
MODE_SENTENCES = {
    "recompute": "every token computes the whole text again",
    "sequential": "each request waits for the one before it",
    "static": "finished rows wait for the longest",
    "dynamic": "a batch starts when it is full or has waited long enough; finished rows wait for the longest",
    "continuous-padded": "requests join and leave at every step; all are padded to the longest",
    "continuous": "requests join and leave at every step",
    "chunked": "requests join and leave at every step; long prompts share steps with the decodes",
    "disaggregated": "one process computes prompts, another decodes; neither waits for the other's work",
}
OUTSIDE = "a server, as its clients see it; how it batches is not known"
JOINING_MODES = ("continuous-padded", "continuous", "chunked")
BATCHED_MODES = ("static", "dynamic")


@dataclass(frozen=True, slots=True)
class Lane:
    """One side of a comparison: a config on a model. `name` is for people; empty takes `lane_name`. With more than one
    of `beams` (paged modes) every request is a beam search of so many. With a
    `server` it is played there, and `config` and `spec` say nothing of it."""

    config: EngineConfig = field(default_factory=EngineConfig)
    spec: ModelSpec = field(default_factory=ModelSpec)
    name: str = ""
    beams: int = 1
    server: Server | None = None

    def with_batch(self, size: int) -> Lane:
        """The same lane with so many requests running at once; the token budget grows with it where it must."""
        budget = max(self.config.token_budget, size)
        return replace(self, config=replace(self.config, max_running=size, token_budget=budget))

    def adapted(self, workload: Workload) -> Lane:
        """The lane whose model has the adapters that the workload's requests name: of the demo model, those that ship
        with it are added. Raises InvalidInput where one is lacking."""
        spec = with_shipped(self.spec, workload.adapters)
        lacking = [name for name in workload.adapters if name not in spec.adapter_names]
        if lacking and self.server is None:
            raise InvalidInput(
                f"workload {workload.name!r}: its requests go through the adapter {shown(lacking[0])}, which "
                f"{spec.source} was not given: load it with that, as NAME=FOLDER, or take another workload"
            )
        return self if spec == self.spec else replace(self, spec=spec)

    def plays(self, workload: Workload) -> Workload:
        """The workload as this lane plays it. Raises InvalidInput where its requests ask for what beams cannot have."""
        if self.beams == 1:
            return workload
        searched = (replace(a, params=a.params.with_(beam_width=self.beams)) for a in workload.arrivals)
        return replace(workload, arrivals=tuple(searched))


def lane_title(lane: Lane) -> str:
    """A heading: "Static batch of 8", "Continuous, paged"."""
    if lane.server is not None:
        return lane.name or f"Server {lane.server.place}"
    title = lane.name or MODE_TITLES[lane.config.mode]
    if not (lane.config.mixed_adapters or lane.name):
        title = f"{title}, one adapter at a time"
    return f"{title} of {lane.config.max_running}" if lane.config.mode in BATCHED_MODES and not lane.name else title


def lane_sentence(lane: Lane) -> str:
    """What the mode does, in plain words, to stand beside the heading."""
    return OUTSIDE if lane.server is not None else MODE_SENTENCES[lane.config.mode]
