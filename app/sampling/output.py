"""What answers are held to: nothing, a regular expression, choices or a JSON schema. Each keeps what was typed."""

import json
from typing import Any

from PySide6.QtCore import Signal
from PySide6.QtGui import QTextCursor
from PySide6.QtWidgets import QWidget

from app.language import tr
from app.sampling.typed_texts import as_typed, typed_texts
from app.ui.controls import DropDown, line_edit
from app.ui.labels import Note, Row
from app.ui.layout.boxes import column, named
from app.ui.prompt_edit import PromptEdit
from engine import SamplingParams
from engine.decoding import grammars_missing
from engine.workloads import SCHEMAS, load_schema

FREE, OWN = "", ""
PATTERN = "[A-Z][a-z]+ the (fox|owl)"
KINDS = (
    (tr("free text"), FREE),
    (tr("regular expression"), "regex"),
    (tr("choices"), "choices"),
    (tr("JSON schema"), "json_schema"),
)
HELD = tr(
    "Rules out every token that would break the grammar; the token card tells what the model would rather have said"
)
REGEX = tr("All of an answer matches it: {pattern}", pattern=PATTERN)
CHOICES = tr("An answer is one of these: yes, no - or a JSON list")
SCHEMA = tr("An answer is JSON to this schema, on one line")
EMPTY = tr("Nothing is written yet: the text is free.")
SPACE = 2  # columns that a level of a schema is indented by


class OutputForm(QWidget):
    """Edits the grammar of a `SamplingParams`."""

    edited = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.kind = DropDown("output_kind", KINDS, tr("Output"))
        self.regex = line_edit("output_regex", tr("Regular expression"), PATTERN)
        self.choices = line_edit("output_choices", tr("Choices"), tr("yes, no, maybe"))
        self.schemas = DropDown("output_schemas", [(tr("own"), OWN), *((name, name) for name in SCHEMAS)], tr("Schema"))
        self.schema = named(PromptEdit("output_schema", least=4, most=12), "output_schema", said=tr("JSON schema"))
        self.schema.setPlaceholderText('{"type": "object", …}')
        self.note = Note("output_note", "warning")
        self._rows: dict[str, list[QWidget]] = {
            "regex": [Row(tr("Pattern"), self.regex, REGEX)],
            "choices": [Row(tr("Choices"), self.choices, CHOICES)],
            "json_schema": [Row(tr("Schema"), self.schemas, SCHEMA), self.schema],
        }
        others = [widget for rows in self._rows.values() for widget in rows]
        self.setLayout(column(Row(tr("Output"), self.kind, HELD), *others, self.note, spacing=8))
        self.kind.currentIndexChanged.connect(self._on_kind)
        self.schemas.activated.connect(self._on_schema)
        self.regex.textChanged.connect(self._on_edited)
        self.choices.textChanged.connect(self._on_edited)
        self.schema.textChanged.connect(self._on_typed)
        self._on_kind()

    def values(self) -> dict[str, Any]:
        """By the names of `SamplingParams`. Raises InvalidInput where choices cannot be read."""
        kind = self.kind.currentData()
        return {
            "regex": self.regex.text() or None if kind == "regex" else None,
            "choices": typed_texts(self.choices.text(), "choices") if kind == "choices" else (),
            "json_schema": self.schema.toPlainText().strip() or None if kind == "json_schema" else None,
        }

    def show_params(self, params: SamplingParams) -> None:
        """Shows what these are held to, and tells nobody."""
        blocked = self.blockSignals(True)
        if params.regex:
            self.regex.setText(params.regex)
        if params.choices:
            self.choices.setText(as_typed(params.choices))
        if params.json_schema and params.json_schema != self._kept():
            self.schema.setPlainText(json.dumps(json.loads(params.json_schema), indent=SPACE, ensure_ascii=False))
        names = (name for _, name in KINDS if name and getattr(params, name))
        self.kind.set_value(next(names, FREE))
        self.blockSignals(blocked)

    def _kept(self) -> str:
        """The schema as it is shown, in the form that params have."""
        try:
            return json.dumps(json.loads(self.schema.toPlainText()), ensure_ascii=False)
        except ValueError:
            return ""

    def _on_kind(self) -> None:
        kind = self.kind.currentData()
        for name, widgets in self._rows.items():
            for widget in widgets:
                widget.setVisible(name == kind)
        if kind == "json_schema" and not self.schema.toPlainText().strip():
            self._fill(SCHEMAS[0])
        self._on_edited()

    def _on_schema(self) -> None:
        if self.schemas.currentData() != OWN:
            self._fill(self.schemas.currentData())

    def _fill(self, name: str) -> None:
        self.schema.replace_text(json.dumps(load_schema(name), indent=SPACE, ensure_ascii=False))
        self.schema.moveCursor(QTextCursor.MoveOperation.Start)

    def _on_typed(self) -> None:
        shown = self._kept()
        named = (name for name in SCHEMAS if shown == json.dumps(load_schema(name), ensure_ascii=False))
        self.schemas.set_value(next(named, OWN))
        self._on_edited()

    def _on_edited(self) -> None:
        kind = self.kind.currentData()
        typed = {"regex": self.regex.text(), "choices": self.choices.text(), "json_schema": self.schema.toPlainText()}
        empty = kind and not typed[kind].strip()
        self.note.say(EMPTY if empty else grammars_missing() if kind else "")
        self.edited.emit()
