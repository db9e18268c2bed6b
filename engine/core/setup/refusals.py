"""What a config cannot have of the model that is loaded."""

from collections.abc import Sequence

from engine.config.checks import check
from engine.config.specs import COLOCATED_MODES, EngineConfig, InvalidInput


def refuse_narrow(config: EngineConfig, windows: Sequence[int]) -> None:
    """Raises InvalidInput for a cache that forgets what a layer with a sliding window would still see: where tokens lie
    says how far apart they are up to there."""
    widest = max(windows, default=0)
    if config.kv_window is not None and config.kv_window < widest:
        raise InvalidInput(
            f"kv_window={config.kv_window:,}: layers of this model attend to the last {widest:,} tokens; "
            f"give at least {widest:,}"
        )


def refuse_undivided(config: EngineConfig, on_gpu: bool) -> None:
    """Raises InvalidInput for what ranks do not do together. On GPUs they hand each other the tokens there."""
    if config.mode not in COLOCATED_MODES:
        modes = " and ".join(COLOCATED_MODES)
        raise InvalidInput(f"mode={config.mode!r}: a model that is split over ranks serves {modes}; use one of them")
    if config.depth and not on_gpu:
        raise InvalidInput("depth=1: ranks need each step's tokens before the next; leave depth None or 0")


def refuse_for_states(config: EngineConfig, layers: Sequence[int]) -> None:
    """Raises InvalidInput for what would have `layers` that keep a state know one that they had before, or another
    request's: each has its newest alone."""
    if not layers:
        return
    why = f"{len(layers)} layers keep a state, and only the newest"
    check(config.speculation is None, "speculation", config.speculation, f"{why}; switch it off")
    check(not config.prefix_caching, "prefix_caching", True, f"{why}; switch it off")
    check(not config.swaps, "preemption", config.preemption, f"{why}; use recompute")
    check(not config.disaggregated, "mode", config.mode, f"{why}, in one process; use continuous or chunked")
