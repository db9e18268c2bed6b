"""What `batchscope doctor` finds."""

from dataclasses import dataclass
from enum import StrEnum

NO_MODEL = "no model can be loaded or run"
NO_WINDOW = "there is no window; the command line still works"


class Status(StrEnum):
    """MISSING: Batchscope would use it, and `cost` says what goes without. NOTE: worth knowing; nothing needs it."""

    OK = "ok"
    MISSING = "missing"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Finding:
    topic: str
    status: Status
    detail: str
    cost: str = ""
    remedy: str = ""

    @property
    def words(self) -> str:
        """ "Qt finds no libEGL.so.1: sudo apt-get install libegl1"."""
        return f"{self.topic} {self.detail}: {self.remedy}" if self.remedy else f"{self.topic}: {self.detail}"


def missing(topic: str, detail: str, cost: str = "", remedy: str = "") -> Finding:
    return Finding(topic, Status.MISSING, detail, cost, remedy)
