"""Runs that travel: as a report, as a trace for Perfetto, as tables, as the prompts to make them again; and in a
notebook. No torch."""

from engine.export.kinds import KINDS, ExportKind, export, kind_of
from engine.export.notebook import NotebookView
from engine.export.reproduction import citation, commands, made_by, software_citation
from engine.export.source import NamedRun, Source, lane_of
