"""Runs that travel: as a trace for Perfetto, as tables, as the prompts to make them again. No torch."""

from engine.export.chrome_trace import write_chrome_trace
from engine.export.kinds import KINDS, ExportKind, export, kind_of
from engine.export.source import NamedRun, Source, lane_of
from engine.export.tables import TABLES, Table, table
