"""Presets: a system prompt and how tokens are chosen, under a name. No Qt in here."""

import contextlib
import json
import time
from dataclasses import asdict, dataclass, field

from app.chat.store.conversations import ConversationStore
from app.language import tr
from engine import InvalidInput, SamplingParams
from engine.workloads import load_schema

SYSTEM = "You are a storyteller who tells short stories to children."
MOST_TOKENS = 200


@dataclass(frozen=True, slots=True)
class Preset:
    """`id` 0 is one that is not kept yet."""

    name: str
    system: str = ""
    params: SamplingParams = field(default_factory=lambda: SamplingParams(max_tokens=MOST_TOKENS))
    id: int = 0


def shipped() -> list[Preset]:
    """Those that a new file begins with: fit for the demo model."""
    params = SamplingParams(max_tokens=MOST_TOKENS)
    return [
        Preset(tr("Storyteller"), SYSTEM, params.with_(temperature=0.8, top_p=0.95)),
        Preset(tr("Exact"), "", params.with_(temperature=0.0)),
        Preset(tr("Adventurous"), "", params.with_(temperature=1.2, min_p=0.05)),
        Preset(tr("As JSON"), "", params.with_(temperature=0.8, json_schema=load_schema("story"))),
    ]


class PresetStore:
    """Presets in the file of conversations, in the order in which they were made; there is always one."""

    def __init__(self, store: ConversationStore) -> None:
        self._file, self._writing = store.file, store.writing
        (known,) = self._file.execute("SELECT count(*) FROM preset").fetchone()
        if not known:
            for preset in shipped():
                self.save(preset)

    def all(self) -> list[Preset]:
        rows = self._file.execute("SELECT id, name, system, params FROM preset WHERE deleted IS NULL ORDER BY id")
        found = []
        for id, name, system, params in rows:
            with contextlib.suppress(ValueError, TypeError):  # written by another version
                found.append(Preset(name, system, SamplingParams(**json.loads(params)), id))
        return found or [Preset(tr("Storyteller"), SYSTEM)]

    def named(self, name: str) -> Preset:
        """The one of this name; the first where there is none any more."""
        presets = self.all()
        return next((preset for preset in presets if preset.name == name), presets[0])

    def save(self, preset: Preset) -> Preset:
        """Keeps a new one, or changes one. Raises InvalidInput where its name is empty or another one's."""
        name = preset.name.strip()
        if not name:
            raise InvalidInput(tr("name: a preset needs one to be found by"))
        if any(other.name == name and other.id != preset.id for other in self._kept()):
            raise InvalidInput(tr("name: there is a preset {name!r} already; choose another name", name=name))
        params = json.dumps(asdict(preset.params))
        with self._writing():
            if preset.id:
                asked = "UPDATE preset SET name = ?, system = ?, params = ? WHERE id = ?"
                self._file.execute(asked, (name, preset.system, params, preset.id))
                return Preset(name, preset.system, preset.params, preset.id)
            asked = "INSERT INTO preset (name, system, params) VALUES (?, ?, ?)"
            made = self._file.execute(asked, (name, preset.system, params)).lastrowid or 0
        return Preset(name, preset.system, preset.params, made)

    def delete(self, preset: Preset) -> None:
        """Raises InvalidInput for the last one."""
        if len(self._kept()) < 2:
            raise InvalidInput(tr("{name!r} is the last preset: make another one first", name=preset.name))
        self._mark(preset, time.time())

    def put_back(self, preset: Preset) -> None:
        self._mark(preset, None)

    def _kept(self) -> list[Preset]:
        return [preset for preset in self.all() if preset.id]

    def _mark(self, preset: Preset, deleted: float | None) -> None:
        with self._writing():
            self._file.execute("UPDATE preset SET deleted = ? WHERE id = ?", (deleted, preset.id))
