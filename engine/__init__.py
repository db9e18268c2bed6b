"""What a script needs of the engine; more is offered by its packages: `engine.trace`, `engine.compare`, ...

Importing it is light: each name is loaded on first use, and only `Engine` needs torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.compare import Lane, Race, Sweep, compare_race, parse_lanes
    from engine.compression import compare_compressed, compress
    from engine.config import EngineConfig, InvalidInput, ModelSpec, Parallel, SamplingParams, Submission
    from engine.core import Completion, Delta, Engine, EngineProcess, Run, Stream
    from engine.export import Source
    from engine.quality import measure_quality, quantize_to_awq
    from engine.trace import Trace, load_trace, measure, save_trace
    from engine.workloads import Workload, list_workloads, load_workload

_OFFERED = {
    "compare": "Lane Race Sweep compare_race parse_lanes",
    "compression": "compare_compressed compress",
    "config": "EngineConfig InvalidInput ModelSpec Parallel SamplingParams Submission",
    "core": "Completion Delta Engine EngineProcess Run Stream",
    "export": "Source",
    "quality": "measure_quality quantize_to_awq",
    "trace": "Trace load_trace measure save_trace",
    "workloads": "Workload list_workloads load_workload",
}
_PACKAGES = {name: package for package, names in _OFFERED.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _PACKAGES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"{__name__}.{_PACKAGES[name]}"), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_PACKAGES})
