"""Runs a step's rows on the device: each runner has a layout of the KV cache of its own."""

from collections.abc import Sequence

from engine.config.specs import EngineConfig
from engine.kernels.cpu.large_pages import Zeros
from engine.memory.rules import FASTEST, captured_tokens
from engine.models.loading import LoadedModel
from engine.parallel.device_pipeline import DevicePipeline
from engine.parallel.pipeline import SharedPipeline
from engine.runner.padded import PaddedRunner
from engine.runner.paged_cpu import PagedRunner
from engine.runner.runner import Runner, on_gpu_path
from engine.runner.staged import StagedRunner


def make_runner(
    model: LoadedModel,
    config: EngineConfig,
    blocks: int,
    operations: float = FASTEST,
    captured: Sequence[int] | None = None,
    zeros: Zeros | None = None,
) -> Runner:
    """The runner that a config asks for on the model's device, with a cache of `blocks` blocks. `captured`: of how many
    tokens a GPU's steps with prompts are; rank 0 tells the others, and it follows from the `operations` a second of the
    device's matrix products where nothing else is said. `zeros` makes a paged cache on a CPU that others share."""
    pipeline = model.group if isinstance(model.group, SharedPipeline) else None
    if captured is None:
        captured = captured_tokens(model.card, config, operations) if on_gpu_path(model.device) else ()
    if model.ranks is not None:
        tokens, card = config.token_budget + config.slots * config.most_sampled, model.card
        channel = pipeline.open(tokens, max(card.hidden, card.vocabulary)) if pipeline is not None else None
        model.ranks.make_runner(config, blocks, channel, captured)
    if not config.paged:
        return PaddedRunner(model, config, blocks)
    if on_gpu_path(model.device):
        from engine.runner.paged_gpu import GpuRunner
        from engine.runner.staged_gpu import StagedGpuRunner

        if isinstance(model.group, DevicePipeline):
            return StagedGpuRunner(model, config, blocks, tuple(captured), model.group)
        return GpuRunner(model, config, blocks, tuple(captured))
    if pipeline is not None:
        return StagedRunner(model, config, blocks, pipeline)
    return PagedRunner(model, config, blocks, zeros)
