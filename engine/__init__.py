"""The public face of the engine. Importing it is light: what needs torch is loaded on first use."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from engine.checkpoints.architectures import why_unsupported
from engine.checkpoints.catalog import ModelEntry, Place, cached_models, folder_model, forget, freed_by, shipped_models
from engine.checkpoints.hub import HubModel, download, hub_info, hub_model, search_hub
from engine.compare.agreement import NEAR_TIE, Agreement, Parting, Verdict, agreement, agreements
from engine.compare.host import EngineFace, EngineHost, LocalHost
from engine.compare.lane import (
    LANE_GRAMMAR,
    Lane,
    lane_name,
    lane_names,
    lane_sentence,
    lane_text,
    lane_title,
    parse_lane,
    parse_lanes,
)
from engine.compare.lane_run import LaneEvent, LaneFailed, LaneFinished, LaneLoading, LaneRun, LaneStarted
from engine.compare.race import RACE_ORDERS, Race, RaceEvent, RaceFinished, RaceResult
from engine.compare.sweep import (
    Recommendation,
    Sweep,
    SweepEvent,
    SweepFinished,
    SweepOutcome,
    SweepPoint,
    SweepResult,
    sizes_up_to,
)
from engine.compare.table import Comparison, MeasureCell, MeasureRow, compare, compare_race, table
from engine.config.schemes import SCHEMES, Quantization, missing, quantized_bytes
from engine.config.specs import (
    DELIVERIES,
    DTYPES,
    MODES,
    MOST_SAMPLES,
    PAGED_MODES,
    QUANTIZATIONS,
    SOLITARY_MODES,
    EngineConfig,
    InvalidInput,
    Message,
    ModelSpec,
    Prompt,
    SamplingParams,
    Submission,
)
from engine.core.machine import nvidia_driver
from engine.core.process import EngineProcess
from engine.core.run import Run
from engine.core.stream import Completion, Delta, Stream
from engine.jobs.job import JobDied
from engine.jobs.progress import LoadCancelled, LoadProgress
from engine.jobs.spawn import warm_up
from engine.memory.fit import DeviceMemory, Fit, fits, model_info, simple_kv
from engine.memory.rules import kv_capacity
from engine.quality.awq_recipe import GROUPS, AwqRecipe, check_recipe, origin_of, quantize_to_awq
from engine.quality.report import DEFAULT_TOKENS, READING, QualityReport, QualityRow, measure_quality, ranked
from engine.quality.texts import TEXTS, read_text, suited_calibration, suited_text
from engine.trace.log import Log, time_of
from engine.trace.measures import MEASURES, Measure, formulas, ratio_text
from engine.trace.metrics import KvShares, Metrics, RequestMetrics, Spread, Timings, measure, request_metrics, timings
from engine.trace.records import (
    BlockEvent,
    Ended,
    FinishReason,
    Header,
    Kind,
    Machine,
    MemoryBreakdown,
    ModelCard,
    Notice,
    Record,
    Refusal,
    Roof,
    Step,
    StepStarted,
    Submitted,
    Telemetry,
)
from engine.trace.requests import RequestIndex, RequestView, SampleView, State
from engine.trace.slo import Slo
from engine.trace.store import SUFFIX as RUN_SUFFIX
from engine.trace.store import TraceWriter
from engine.trace.store import load as load_trace
from engine.trace.store import save as save_trace
from engine.trace.trace import Trace
from engine.trace.work import Work, WorkCounter, count_work
from engine.workloads.distributions import ARRIVALS
from engine.workloads.library import PROMPT_FILES, WorkloadCard, demo_workload, list_workloads, load_workload
from engine.workloads.prompt_files import read_prompts
from engine.workloads.templates import expand_template, template_size
from engine.workloads.workload import Arrival, Suggestion, Workload

if TYPE_CHECKING:
    from app.cli.doctor import examine, render
    from engine.checkpoints.inspect import ModelInfo, inspect_model
    from engine.core.engine import Engine

_LAZY = {
    "Engine": "engine.core.engine",
    "examine": "app.cli.doctor",
    "render": "app.cli.doctor",
    "ModelInfo": "engine.checkpoints.inspect",
    "inspect_model": "engine.checkpoints.inspect",
}

__all__ = [
    "ARRIVALS",
    "DEFAULT_TOKENS",
    "DELIVERIES",
    "DTYPES",
    "GROUPS",
    "LANE_GRAMMAR",
    "MEASURES",
    "MODES",
    "MOST_SAMPLES",
    "NEAR_TIE",
    "PAGED_MODES",
    "PROMPT_FILES",
    "QUANTIZATIONS",
    "RACE_ORDERS",
    "READING",
    "RUN_SUFFIX",
    "SCHEMES",
    "SOLITARY_MODES",
    "TEXTS",
    "Agreement",
    "Arrival",
    "AwqRecipe",
    "BlockEvent",
    "Comparison",
    "Completion",
    "Delta",
    "DeviceMemory",
    "Ended",
    "Engine",
    "EngineConfig",
    "EngineFace",
    "EngineHost",
    "EngineProcess",
    "FinishReason",
    "Fit",
    "Header",
    "HubModel",
    "InvalidInput",
    "JobDied",
    "Kind",
    "KvShares",
    "Lane",
    "LaneEvent",
    "LaneFailed",
    "LaneFinished",
    "LaneLoading",
    "LaneRun",
    "LaneStarted",
    "LoadCancelled",
    "LoadProgress",
    "LocalHost",
    "Log",
    "Machine",
    "Measure",
    "MeasureCell",
    "MeasureRow",
    "MemoryBreakdown",
    "Message",
    "Metrics",
    "ModelCard",
    "ModelEntry",
    "ModelInfo",
    "ModelSpec",
    "Notice",
    "Parting",
    "Place",
    "Prompt",
    "QualityReport",
    "QualityRow",
    "Quantization",
    "Race",
    "RaceEvent",
    "RaceFinished",
    "RaceResult",
    "Recommendation",
    "Record",
    "Refusal",
    "RequestIndex",
    "RequestMetrics",
    "RequestView",
    "Roof",
    "Run",
    "SampleView",
    "SamplingParams",
    "Slo",
    "Spread",
    "State",
    "Step",
    "StepStarted",
    "Stream",
    "Submission",
    "Submitted",
    "Suggestion",
    "Sweep",
    "SweepEvent",
    "SweepFinished",
    "SweepOutcome",
    "SweepPoint",
    "SweepResult",
    "Telemetry",
    "Timings",
    "Trace",
    "TraceWriter",
    "Verdict",
    "Work",
    "WorkCounter",
    "Workload",
    "WorkloadCard",
    "agreement",
    "agreements",
    "cached_models",
    "check_recipe",
    "compare",
    "compare_race",
    "count_work",
    "demo_workload",
    "download",
    "examine",
    "expand_template",
    "fits",
    "folder_model",
    "forget",
    "formulas",
    "freed_by",
    "hub_info",
    "hub_model",
    "inspect_model",
    "kv_capacity",
    "lane_name",
    "lane_names",
    "lane_sentence",
    "lane_text",
    "lane_title",
    "list_workloads",
    "load_trace",
    "load_workload",
    "measure",
    "measure_quality",
    "missing",
    "model_info",
    "nvidia_driver",
    "origin_of",
    "parse_lane",
    "parse_lanes",
    "quantize_to_awq",
    "quantized_bytes",
    "ranked",
    "ratio_text",
    "read_prompts",
    "read_text",
    "render",
    "request_metrics",
    "save_trace",
    "search_hub",
    "shipped_models",
    "simple_kv",
    "sizes_up_to",
    "suited_calibration",
    "suited_text",
    "table",
    "template_size",
    "time_of",
    "timings",
    "warm_up",
    "why_unsupported",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'engine' has no attribute {name!r}")
