"""How the connection to a server is, and what this window may do there."""

from dataclasses import dataclass

TOLD = "observes", "texts", "model", "caller", "barred", "holder", "replicas"  # by a server, of what this window may do


@dataclass(frozen=True, slots=True)
class LinkStatus:
    """`behind`: records that the server has and this window has not. `observes`: why it may only look, "" where it has
    control; `barred`: its key may never have that. `holder`: the name of the key whose window has it, "" where that has
    no name, None where nobody has it. `texts`: whether it is told what is said. `model` is what clients call it,
    `caller` the key's name, `replicas` how many a fleet has (0: one engine)."""

    connected: bool = False
    behind: int = 0
    observes: str = ""
    texts: bool = True
    model: str = ""
    caller: str = ""
    barred: bool = False
    holder: str | None = None
    replicas: int = 0

    @property
    def free(self) -> bool:
        """Whether it can take control now."""
        return bool(self.observes) and not self.barred and self.holder is None
