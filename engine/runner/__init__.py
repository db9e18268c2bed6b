"""Runs a step's rows on the device: each runner has a layout of the KV cache of its own."""

from engine.config.specs import EngineConfig
from engine.memory.rules import FASTEST
from engine.models.loading import LoadedModel
from engine.parallel.pipeline import Pipeline
from engine.runner.padded import PaddedRunner
from engine.runner.paged_cpu import PagedRunner
from engine.runner.runner import Runner, on_gpu_path
from engine.runner.staged import StagedRunner


def make_runner(model: LoadedModel, config: EngineConfig, blocks: int, operations: float = FASTEST) -> Runner:
    """The runner that a config asks for on the model's device, with a cache of `blocks` blocks; `operations` a second
    of the device's matrix products."""
    pipeline = model.group if isinstance(model.group, Pipeline) else None
    if model.ranks is not None:
        tokens, card = config.token_budget + config.slots * config.most_sampled, model.card
        channel = pipeline.open(tokens, max(card.hidden, card.vocabulary)) if pipeline is not None else None
        model.ranks.make_runner(config, blocks, channel)
    if not config.paged:
        return PaddedRunner(model, config, blocks)
    if on_gpu_path(model.device):
        from engine.runner.paged_gpu import GpuRunner

        return GpuRunner(model, config, blocks, operations)
    if pipeline is not None:
        return StagedRunner(model, config, blocks, pipeline)
    return PagedRunner(model, config, blocks)
