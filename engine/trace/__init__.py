"""What happened: immutable records, the requests they tell of, measures, and the file they are kept in. No torch."""

from engine.trace.amounts import bytes_text, parameters_text
from engine.trace.attention import Attended, attended
from engine.trace.bsrun import SUFFIX as RUN_SUFFIX
from engine.trace.bsrun import TraceWriter
from engine.trace.bsrun import load as load_trace
from engine.trace.bsrun import save as save_trace
from engine.trace.column import Array, Column
from engine.trace.expert_load import imbalance, rank_loads
from engine.trace.index import FiledLog, IndexFolder, forget_index
from engine.trace.log import Log, time_of
from engine.trace.measures.formulas import MEASURES, Measure, formulas, ratio_text
from engine.trace.measures.metrics import KvShares, Metrics, RequestMetrics, Timings, measure, request_metrics, timings
from engine.trace.measures.slo import Slo
from engine.trace.measures.spread import Spread
from engine.trace.peak import busiest
from engine.trace.presence import Presence
from engine.trace.records import (
    BlockEvent,
    Ended,
    Fate,
    FinishReason,
    Header,
    Interconnect,
    Kernels,
    Kind,
    Machine,
    MemoryBreakdown,
    ModelCard,
    Notice,
    PromptScored,
    Record,
    Refusal,
    Roof,
    Steered,
    Step,
    StepStarted,
    Submitted,
    SwapEvent,
    Telemetry,
)
from engine.trace.requests import RequestIndex, RequestView, SampleView, State
from engine.trace.tally import Tally, TallyIndex
from engine.trace.thoughts import THOUGHTS_OPENED, Parting, Said, begins_amid, split_thoughts
from engine.trace.timed_kernels import KernelTimes, kernel_times
from engine.trace.trace import Trace
from engine.trace.work import Work, WorkCounter, activated_by_chance, count_work
