"""The engine's tokenizer, asked from the event loop."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import Executor

from engine.core.face import EngineFace


class Vocabulary:
    """Tokens' texts by themselves, each asked for once."""

    def __init__(self, engine: EngineFace, executor: Executor) -> None:
        self._engine, self._executor = engine, executor
        self._pieces: dict[int, str] = {}

    async def pieces(self, tokens: Sequence[int]) -> list[str]:
        known = self._pieces
        if unknown := sorted({token for token in tokens if token not in known}):
            loop = asyncio.get_running_loop()
            known.update(zip(unknown, await loop.run_in_executor(self._executor, self._engine.pieces, unknown)))
        return [known[token] for token in tokens]
