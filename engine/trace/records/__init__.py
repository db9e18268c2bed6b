"""The records of a trace: immutable, complete, and all that any view knows. Times are seconds from the trace's start.

A `Step` holds columns, not row objects.
"""

from engine.trace.column import Array
from engine.trace.records.arrays import EMPTY, freeze
from engine.trace.records.codec import Record, decode, encode
from engine.trace.records.events import Notice, Steered, Telemetry
from engine.trace.records.header import (
    VERSION,
    Header,
    Interconnect,
    Kernels,
    Machine,
    MemoryBreakdown,
    ModelCard,
    Roof,
)
from engine.trace.records.older import OLDEST, Older
from engine.trace.records.request import Ended, FinishReason, PromptScored, Submitted
from engine.trace.records.step import BlockEvent, Fate, Kind, Refusal, Step, StepStarted, SwapEvent
