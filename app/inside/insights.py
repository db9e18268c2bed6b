"""Which panels look inside, and where they are. No Qt in here before one is built."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from app.language import tr

if TYPE_CHECKING:
    from app.inside.panel import InsightPanel
    from app.playback.scope import Scope


@dataclass(frozen=True, slots=True)
class Insight:
    """One of the panels: its `name` in layouts and files, its title, where its class is."""

    name: str
    say: Callable[[], str]
    place: str

    @property
    def title(self) -> str:
        return self.say()

    def build(self, scope: Scope) -> InsightPanel:
        """The panel. Its module is loaded now: the window's first paint needs none of them."""
        module, name = self.place.split(":")
        make: Callable[[Scope], InsightPanel] = getattr(import_module(module), name)
        return make(scope)


INSIGHTS = (
    Insight("timeline", lambda: tr("Timeline"), "app.inside.timeline.panel:TimelinePanel"),
    Insight("step", lambda: tr("Step"), "app.inside.step.panel:StepInspector"),
    Insight("kv_map", lambda: tr("KV map"), "app.inside.kv_map.panel:KvMap"),
    Insight("beams", lambda: tr("Beams"), "app.inside.beams.panel:BeamsPanel"),
    Insight("attention", lambda: tr("Attention"), "app.inside.attention.panel:AttentionPanel"),
    Insight("experts", lambda: tr("Experts"), "app.inside.experts.panel:ExpertsPanel"),
    Insight("memory", lambda: tr("Memory"), "app.inside.memory.panel:MemoryBill"),
    Insight("roofline", lambda: tr("Bottleneck"), "app.inside.roofline.panel:Roofline"),
    Insight("machine", lambda: tr("Machine"), "app.inside.machine.panel:MachinePanel"),
)
