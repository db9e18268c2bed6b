"""How many threads torch computes with on a CPU: what a decode step gains by."""

from engine.config.specs import EngineConfig
from engine.core.setup.rehearsal import ROWS, Rehearsal, ThreadChoice
from engine.decoding.detokenizer_factory import DetokenizerFactory
from engine.models.loading import LoadedModel
from engine.runner.paged_cpu import PagedRunner


def fastest_threads(model: LoadedModel, detokenizers: DetokenizerFactory) -> ThreadChoice:
    """Measured once a load, and the same for every mode."""
    config, blocks = EngineConfig(max_running=ROWS, block_size=16), 2 * ROWS
    runner = PagedRunner(model, config, blocks)
    runner.capture(lambda done, total: None)
    return Rehearsal(runner, config, blocks, model.card.context, detokenizers).fastest_threads()
