"""The child's side of `engine.quality.report`: one model after another is loaded, predicts the text and decodes."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from importlib import import_module
from math import exp
from statistics import median
from typing import IO, Any

import numpy as np
import torch
from torch import Tensor

from engine.checkpoints.catalog import local_info
from engine.config.sampling_params import SamplingParams
from engine.config.schemes import SCHEMES
from engine.config.specs import EngineConfig, InvalidInput, ModelSpec
from engine.config.submission import Submission
from engine.core.engine import Engine
from engine.jobs.job import Report
from engine.jobs.progress import LoadCancelled, LoadProgress
from engine.memory.allocator import release_references
from engine.models import attention
from engine.models.config import first_line
from engine.models.loading import LoadedModel
from engine.models.quantization import bitsandbytes
from engine.quality.kv_cache import KvCache
from engine.quality.reading import reading
from engine.quality.report import BATCH, READING, QualityReport, QualityRow
from engine.quality.texts import read_text, scored_tokens
from engine.trace.measures.decode_steps import decode_steps

ROWS = 64  # positions whose distributions are compared at a time, in float64
SPARE = 0.8  # of the free disk, for the original's distributions
UNKNOWN_POOL = 1 << 30  # bytes of the KV pool where what a token takes is not known before the load
PROMPT, TRIAL, MOST, SECONDS = 16, 8, 128, 2.0  # of the speed: tokens of a prompt, of a trial; most tokens and seconds

Say = Callable[[str, int, int], None]
OWN = KvCache()


@dataclass(frozen=True, slots=True)
class Window:
    """Tokens that are read together; `scored[i]`: token `i + 1` is predicted."""

    ids: list[int]
    scored: list[bool]


def windows_of(ids: list[int], scored: list[bool], window: int, tokens: int) -> list[Window]:
    """Windows that do not overlap, until `tokens` are predicted; each window's first token is not."""
    found, left = [], tokens
    for start in range(0, len(ids) - 1, window):
        wanted = scored[start + 1 : start + window]
        positions = [i for i, each in enumerate(wanted) if each][:left]
        if positions:
            end = positions[-1] + 1
            found.append(Window(ids[start : start + end + 1], wanted[:end]))
            left -= len(positions)
        if left == 0:
            break
    return found


class Yardstick:
    """The text as token ids, and the original's distribution at each of them, as log-probabilities in a file."""

    def __init__(self, content: str, tokens: int, window: int, file: IO[bytes]) -> None:
        self._content, self._file = content, file
        self._ids: list[int] = []
        self._vocabulary = 0
        self.windows: list[Window] = []
        self.wanted, self.window, self.note = tokens, window, ""

    @property
    def tokens(self) -> int:
        return sum(sum(w.scored) for w in self.windows)

    def prepare(self, model: LoadedModel) -> None:
        """With the original. Raises InvalidInput where the text is too short, or the disk too full."""
        self._ids, scored = self._encoded(model)
        if model.card.context:
            self.window = min(self.window, model.card.context)
        self._vocabulary = model.card.vocabulary
        each = 4 * self._vocabulary
        room = int(SPARE * shutil.disk_usage(tempfile.gettempdir()).free) // each
        tokens = min(self.wanted, room)
        self.windows = windows_of(self._ids, scored, self.window, tokens)
        if self.tokens < min(ROWS, self.wanted):
            if room < ROWS:
                folder = tempfile.gettempdir()
                raise InvalidInput(f"{folder} is full: the original's predictions take {each:,} bytes a token there")
            raise InvalidInput(f"the text has {self.tokens} tokens to predict: choose one of at least {ROWS}")
        if self.tokens < self.wanted:
            reason = "the text has no more" if self.tokens < tokens else "more do not fit on the disk"
            self.note = f"{self.tokens:,} of {self.wanted:,} tokens: {reason}"

    def _encoded(self, model: LoadedModel) -> tuple[list[int], list[bool]]:
        return scored_tokens(lambda text: model.tokenizer(text, verbose=False).input_ids, self._content)

    def check(self, model: LoadedModel) -> None:
        """Raises InvalidInput for a model whose tokens are not the original's."""
        if model.card.vocabulary != self._vocabulary or self._encoded(model)[0] != self._ids:
            raise InvalidInput("its tokens are not the original's: it is no quantization of this model")

    def read(self, model: LoadedModel, say: Say, original: bool, cache: KvCache = OWN) -> tuple[float, float, float]:
        """Perplexity, mean divergence from the original, and the share of positions where both agree."""
        self._file.seek(0)
        lost = divergence = agreed = done = 0.0
        for window in self.windows:
            say(READING, int(done), self.tokens)
            ids = torch.tensor([window.ids], device=model.device)
            with attention.current_device(model.device), _attention(model, cache) as given, torch.inference_mode():
                logits = model.module(input_ids=ids, use_cache=False, **given).logits[0, :-1]
            at = torch.tensor(window.scored, device=model.device).nonzero()[:, 0]
            for rows in at.split(ROWS):
                logs = logits[rows].double().log_softmax(-1).cpu()
                targets = ids[0, 1:][rows].cpu()
                lost -= logs.gather(1, targets[:, None]).sum().item()
                if original:
                    logs.float().numpy().tofile(self._file)
                else:
                    kl, same = self._compare(logs)
                    divergence, agreed = divergence + kl, agreed + same
                done += len(rows)
        say(READING, int(done), self.tokens)
        return exp(lost / done), max(0.0, divergence / done), 1.0 if original else agreed / done

    def _compare(self, logs: Tensor) -> tuple[float, float]:
        """Sums over rows `[positions, vocabulary]`: KL(original || this), and where both have the same best token."""
        theirs = np.fromfile(self._file, np.float32, logs.numel()).reshape(logs.shape)
        expected = torch.from_numpy(theirs)
        same = (expected.argmax(1) == logs.float().argmax(1)).sum().item()
        wide = expected.double()
        return (wide.exp() * (wide - logs)).sum().item(), same


@contextmanager
def _attention(model: LoadedModel, cache: KvCache) -> Iterator[dict[str, Any]]:
    """What a forward is given beside its tokens. The module has transformers' own eager attention, which every model
    has, and then ours again; ours all the while where K and V are kept in another way."""
    if (batch := reading(cache)) is not None:
        yield {"batch": batch}
        return
    model.module.set_attn_implementation("eager")
    try:
        yield {}
    finally:
        model.module.set_attn_implementation(attention.NAME)


def decode_rate(engine: Engine, prompts: list[list[int]]) -> float:
    """Tokens a second in steps where all prompts decode: the median step's, of at most SECONDS."""

    def period(tokens: int) -> float:
        before = len(engine.trace.steps)
        params = SamplingParams(max_tokens=tokens, temperature=0, ignore_eos=True)
        for stream in engine.submit_many([Submission(prompt, params) for prompt in prompts]):
            stream.result()
        timings = decode_steps(engine.trace.steps[before:], len(prompts))
        return median(t.period for t in timings) if timings else 0.0

    longest = min(MOST, engine.card.context - PROMPT) if engine.card.context else MOST
    trial = period(min(TRIAL, longest))
    more = min(longest, int(SECONDS / trial)) if trial else 0
    if more > TRIAL:
        trial = period(more)
    return len(prompts) / trial if trial else 0.0


def work(arguments: dict[str, Any], report: Report) -> dict[str, Any]:
    """Arguments and result as JSON: those of `measure_quality`, and a QualityReport."""
    specs = [ModelSpec(**spec) for spec in arguments["specs"]]
    for library in {SCHEMES[spec.quantization].library for spec in specs} - {""}:
        with suppress(Exception):  # what is missing, or broken, is told by the load, whose seconds are told too
            bitsandbytes.library() if library == bitsandbytes.NAME else import_module(library)
    with tempfile.TemporaryFile() as file:
        yardstick = Yardstick(read_text(arguments["text"]), arguments["tokens"], arguments["window"], file)
        original, place = _measured(ModelSpec(**arguments["original"]), yardstick, "original", report, True)
        rows: list[QualityRow] = []

        def found() -> dict[str, Any]:
            windows = yardstick.tokens, yardstick.window
            return QualityReport(original, tuple(rows), arguments["text"], *windows, place, yardstick.note).to_json()

        plain = ModelSpec(**arguments["original"])
        ways = [*((spec, "") for spec in specs), *((plain, cache) for cache in arguments.get("caches", ()))]
        for i, (spec, cache) in enumerate(ways, 1):
            report(LoadProgress("", part=found()))
            what = spec.quantization if spec.quantization != "none" else spec.dtype
            name = f"{f'KV {cache}' if cache else what} ({i} of {len(ways)})"
            try:
                rows.append(_measured(spec, yardstick, name, report, False, cache)[0])
            except LoadCancelled:
                raise
            except Exception as error:  # each library raises its own: one that fails keeps no other from its row
                words = str(error) if isinstance(error, InvalidInput) else first_line(error)
                failed = QualityRow(spec, spec.quantization, spec.dtype, agreement=0.0, error=words, cache=cache)
                rows.append(failed)
                release_references(error)
        return found()


def pool_bytes(spec: ModelSpec) -> int:
    """Of a pool for the longest that is decoded, which leaves the rest of the memory to reading. UNKNOWN_POOL
    where the model's files are not here yet."""
    try:
        token_bytes = local_info(spec).kv_token_bytes("float32")
    except InvalidInput:
        return UNKNOWN_POOL
    return BATCH * (PROMPT + MOST + EngineConfig().block_size) * token_bytes


def _measured(
    spec: ModelSpec, yardstick: Yardstick, name: str, report: Report, original: bool, cache: str = ""
) -> tuple[QualityRow, str]:
    """A model's row, and the device in words. It is loaded here and gone on return: two are never in memory."""

    def say(stage: str, done: int = 0, total: int = 0) -> None:
        report(LoadProgress(f"{name}: {stage}", done, total))

    kept = KvCache.named(cache)
    memory = pool_bytes(spec)
    config = EngineConfig(max_running=BATCH, token_budget=BATCH * PROMPT, kv_memory=memory, **kept.settings)
    with Engine(spec, config, progress=lambda p: report(replace(p, stage=f"{name}: {p.stage}"))) as engine:
        (yardstick.prepare if original else yardstick.check)(engine.model)
        with ThreadPoolExecutor(1, "text") as pool:  # it ends: its OpenMP team would slow the engine's down
            figures = pool.submit(yardstick.read, engine.model, say, original, kept).result()
        say("decoding")
        tokens = [token for window in yardstick.windows for token in window.ids]
        prompts = [[tokens[(i * PROMPT + j) % len(tokens)] for j in range(PROMPT)] for i in range(BATCH)]
        card, place = engine.card, engine.trace.header.machine
        rates = decode_rate(engine, prompts[:1]), decode_rate(engine, prompts)
        took = card.load_seconds, card.weight_bytes
        row = QualityRow(spec, card.quantization, card.dtype, *figures, *rates, *took, cache=cache)
    threads = f"{place.threads} thread{'s' * (place.threads != 1)}"
    words = place.gpu if card.device.startswith("cuda") else f"{place.cpu}, {threads}"
    return row, words
