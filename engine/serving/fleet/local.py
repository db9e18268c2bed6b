"""A fleet on this machine: each replica a process."""

import threading
from collections.abc import Callable
from dataclasses import replace

from engine.config.checks import whole
from engine.config.specs import EngineConfig, ModelSpec
from engine.core.child.process import EngineProcess
from engine.jobs.progress import LoadProgress
from engine.serving.fleet.fleet import MOST, Fleet, check_mode


def local_fleet(
    spec: ModelSpec,
    config: EngineConfig | None = None,
    replicas: int = 2,
    *,
    progress: Callable[[LoadProgress], None] | None = None,
    threads: int | None = None,
    most_threads: int | None = None,
) -> Fleet:
    """`config` is that of each replica; without `kv_memory`, what one engine would take for its KV pool is shared among
    all. The first is loaded alone, with `progress`, and the others at once after it."""
    config = config or EngineConfig()
    whole("replicas", replicas, 1, MOST)
    check_mode(config)
    first = EngineProcess(spec, config, progress=progress, threads=threads, most_threads=most_threads)
    try:
        if config.kv_memory is None and replicas > 1:
            header = first.trace.header
            tokens = max(1, header.blocks // replicas) * config.block_size
            states = header.model.states_of(config)  # of each replica as many
            config = replace(config, kv_memory=tokens * header.kv_token_bytes + states)
            first.begin(config)
    except BaseException:
        first.close()
        raise
    share = config

    def make(place: int, cancelled: threading.Event) -> EngineProcess:
        return EngineProcess(spec, share, cancelled=cancelled, threads=threads, most_threads=most_threads)

    return Fleet(make, replicas, first)
