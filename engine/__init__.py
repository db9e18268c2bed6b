"""What a script needs of the engine; more is offered by its packages: `engine.trace`, `engine.compare`, ...

Importing it is light: `Engine`, which needs torch, is loaded on first use.
"""

from typing import TYPE_CHECKING

from engine.compare import Lane, Race, Sweep, compare_race, parse_lanes
from engine.compression import compare_compressed, compress
from engine.config import EngineConfig, InvalidInput, ModelSpec, SamplingParams, Submission
from engine.core import Completion, Delta, EngineProcess, Run, Stream, __getattr__
from engine.export import Source
from engine.quality import measure_quality, quantize_to_awq
from engine.trace import Trace, load_trace, measure, save_trace
from engine.workloads import Workload, list_workloads, load_workload

if TYPE_CHECKING:
    from engine.core import Engine
