"""The workloads that are shipped, and loading those and a person's own by name or path."""

from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import resources
from engine.config.checks import InvalidInput, whole
from engine.config.sampling_params import SamplingParams
from engine.config.submission import Prompt
from engine.workloads.distributions import Times
from engine.workloads.mooncake import is_mooncake, read_mooncake
from engine.workloads.prompt_files import PromptFile, first_character, read_jsonl, read_sharegpt, read_text
from engine.workloads.recipes import MOST_REQUESTS, MOST_SEED, changed, cook, read_recipe
from engine.workloads.templates import expand_template
from engine.workloads.tokens import TokenCounter, counter_for
from engine.workloads.workload import Arrival, Suggestion, Workload

SHIPPED = (
    "burst",
    "trickle",
    "mixed-lengths",
    "long-prompt",
    "shared-system-prompt",
    "chat-turns",
    "json-stories",
    "copying",
    "few-shot",
    "several-apps",
    "two-classes",
    "thoughts",
    "voices",
)
PROMPT_FILES = {".txt": "a prompt a line", ".jsonl": "an object a line", ".json": "ShareGPT conversations"}
DEMO_TEMPLATE = (
    "Tell me a story about a {fox|whale|dragon|robot|penguin|wizard|turtle|mouse} "
    "and a {lantern|violin|kite|piano|boat|map|clock|rose}."
)


@dataclass(frozen=True, slots=True)
class WorkloadCard:
    """A shipped workload for a picker; `load_workload(name)` makes it. `adapters`: those of its requests."""

    name: str
    title: str
    description: str
    requests: int
    suggested: Suggestion
    adapters: tuple[str, ...] = ()


def list_workloads() -> tuple[WorkloadCard, ...]:
    """The shipped workloads, in the order in which a lecture would show them."""
    recipes = [read_recipe(_shipped(name)) for name in SHIPPED]
    return tuple(WorkloadCard(r.name, r.title, r.description, r.requests, r.suggested, r.adapters) for r in recipes)


def _shipped(name: str) -> Path:
    return resources.path(f"workloads/{name}.toml")


def load_workload(
    source: str | Path,
    *,
    model_folder: str | Path | None = None,
    seed: int | None = None,
    count: int | None = None,
    arrivals: str | None = None,
    rate: float | None = None,
    burstiness: float | None = None,
    concurrency: int | None = None,
    chat: bool | None = None,
    params: SamplingParams | None = None,
) -> Workload:
    """A shipped workload by name, or a file: .toml (a recipe), .txt, .jsonl or .json (ShareGPT).

    Prompt lengths are counted with the tokenizer of `model_folder`: a folder, "demo" or a hub id (None: the demo
    model); where that is not on this machine they are estimated, and the workload says so. What else is given replaces
    what the workload has: `count` requests (a file's prompts begin again when it has fewer), `arrivals` (at once,
    constant, poisson, gamma) at `rate` a second with `burstiness`, at most `concurrency` open at once, chats or plain
    text (None: what the model takes). `params` samples the prompts of a file that do not say themselves. Raises
    InvalidInput naming the file, the line or key, and the remedy.
    """
    path = Path(source).expanduser()
    if str(source) in SHIPPED:
        path = _shipped(str(source))
    elif path.suffix not in (".toml", *PROMPT_FILES):
        kinds = ", ".join((".toml", *PROMPT_FILES))
        raise InvalidInput(f"no workload {str(source)!r}: give one of {', '.join(SHIPPED)}, or a file ({kinds})")

    def timed(times: Times) -> Times:
        return times.with_(arrivals, rate, burstiness)

    counter = counter_for(model_folder)
    if path.suffix != ".toml":
        params, chat = params or SamplingParams(), counter.chat if chat is None else chat
        found = _read_prompts(path, counter, params, chat, count, seed or 0)
        prompts = found.arrivals
        if (arrivals, rate, burstiness) != (None,) * 3 or not found.timed:
            drawn = timed(Times()).draw(len(prompts), Random(f"{seed or 0}/times"))
            prompts = tuple(replace(a, time=time) for a, time in zip(prompts, drawn, strict=True))
        return Workload(path.name, prompts, concurrency, found.dropped, estimated=not counter.exact)
    if params is not None:
        raise InvalidInput(f"params: the workload {path.stem} says itself how it samples; use Workload.with_params")
    recipe = changed(read_recipe(path), timed, count, chat)
    if seed is not None:
        recipe = replace(recipe, seed=whole("seed", seed, 0, MOST_SEED))
    if concurrency is not None:
        recipe = replace(recipe, concurrency=concurrency)
    try:
        return cook(recipe, counter)
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from None


def read_prompts(
    source: str | Path, params: SamplingParams | None = None, chat: bool = False, model_folder: str | Path | None = None
) -> tuple[Arrival, ...]:
    """The prompts of a file of any kind that `load_workload` takes, or of one whose name does not say which: then its
    first character does, `{` and `[` being JSON's. `params` samples what does not say itself how, which a recipe does.
    Raises InvalidInput with the line that is wrong."""
    path, params = Path(source).expanduser(), params or SamplingParams()
    if path.suffix == ".toml":
        return load_workload(path, model_folder=model_folder, chat=chat).arrivals
    kinds = {b"{": ".jsonl", b"[": ".json"}
    kind = path.suffix if path.suffix in (".json", ".jsonl") else kinds.get(first_character(path), ".txt")
    counter = counter_for(model_folder)
    if kind == ".json":
        return read_sharegpt(path, counter, params, chat).arrivals
    return _read_lines(path, kind, counter, params, chat).arrivals


def _read_lines(path: Path, kind: str, counter: TokenCounter, params: SamplingParams, chat: bool) -> PromptFile:
    if kind != ".txt" and is_mooncake(path):
        return read_mooncake(path, counter, params)
    return (read_text if kind == ".txt" else read_jsonl)(path, counter, params, chat)


def _read_prompts(
    path: Path, counter: TokenCounter, params: SamplingParams, chat: bool, count: int | None, seed: int
) -> PromptFile:
    """A prompt file's prompts, `count` of them: they begin again where there are fewer."""
    if count is not None:
        whole("count", count, 1, MOST_REQUESTS)
    if path.suffix == ".json":
        found = read_sharegpt(path, counter, params, chat, count, seed)
    else:
        found = _read_lines(path, path.suffix, counter, params, chat)
    if count is not None:
        prompts = found.arrivals
        found = replace(found, arrivals=tuple(prompts[i % len(prompts)] for i in range(count)))
    return found


def demo_workload(count: int = 64, params: SamplingParams | None = None) -> Workload:
    """`count` story prompts for the demo model, as chats, all at once."""
    params = params or SamplingParams(max_tokens=200, temperature=0.8, top_p=0.95)
    prompts: list[Prompt] = [[{"role": "user", "content": text}] for text in expand_template(DEMO_TEMPLATE, count)]
    return Workload.at_once("demo stories", prompts, params)
