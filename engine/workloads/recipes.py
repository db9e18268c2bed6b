"""Recipes: the TOML files that say how a workload's requests are drawn."""

import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

from engine.config.checks import InvalidInput, check, known_keys, number, text, whole
from engine.config.files import read_file
from engine.config.sampling_params import MOST_PRIORITY, SamplingParams
from engine.config.submission import Message, Prompt
from engine.workloads.chats import asked_again, told_stories, with_examples
from engine.workloads.distributions import MOST_TOKENS, Lengths, Times, read_lengths, tokens
from engine.workloads.schemas import SCHEMAS, load_schema
from engine.workloads.texts import asks, stories, text_of
from engine.workloads.tokens import TokenCounter
from engine.workloads.workload import Arrival, Suggestion, Workload

MOST_REQUESTS = 100_000
LONGEST = 1 << 20  # bytes of a recipe
MOST_SEED = 2**63
MOST_EXAMPLES = 1000
_TOP = ("name", "title", "description", "seed", "concurrency", "race", "requests")
_RACE = ("kv_tokens", "lanes")
_GROUP = tuple(
    "count label arrivals rate burstiness start prompt_tokens output_tokens system_tokens turns pause answer_tokens "
    "temperature chat regex choices json_schema again examples priority adapter".split()
)
_GRAMMARS = ("regex", "choices", "json_schema")


@dataclass(frozen=True, slots=True)
class Group:
    """Requests of one kind. Lengths are tokens of the texts as written; a chat template adds its own.

    With `turns` above 1 it holds `count` conversations: each turn is a request whose prompt has all turns before it,
    with scripted answers, `pause` seconds after the one before. `system` tokens are the same for all requests. With
    `again` the prompt is an ask for a story, the story, and an ask for the same; the output is as long. `examples`: so
    many questions and answers of one kind, the same for all requests, stand before a question of that kind.
    `priority` and `adapter` are each request's. `grammar`: what their output is held to, by the name that
    SamplingParams have for it.
    """

    count: int
    times: Times
    prompt: Lengths | None  # None: again, or examples
    output: Lengths | None  # None: again
    system: int = 0
    turns: int = 1
    pause: float = 0.0
    answer: Lengths | None = None
    temperature: float = 0.0
    chat: bool | None = None
    label: str = ""
    grammar: tuple[tuple[str, Any], ...] = ()
    again: bool = False
    examples: int = 0
    priority: int = 0
    adapter: str = ""


@dataclass(frozen=True, slots=True)
class Recipe:
    """A workload before its prompts are written."""

    name: str
    groups: tuple[Group, ...]
    title: str = ""
    description: str = ""
    seed: int = 0
    concurrency: int | None = None
    suggested: Suggestion = Suggestion()

    @property
    def requests(self) -> int:
        return sum(group.count * group.turns for group in self.groups)

    @property
    def adapters(self) -> tuple[str, ...]:
        """The names of those that its requests go through."""
        return tuple(dict.fromkeys(group.adapter for group in self.groups if group.adapter))


def read_recipe(path: Path) -> Recipe:
    """The recipe of a TOML file. Raises InvalidInput naming the file, the key and the remedy."""
    try:
        table = tomllib.loads(read_file(path, LONGEST).decode())
    except OSError as error:
        raise InvalidInput(f"cannot read the workload {path}: {error.strerror}; check the path") from error
    except ValueError as error:  # not UTF-8, or not TOML: that names line and column
        raise InvalidInput(f"{path}: not TOML: {error}") from error
    try:
        return _recipe(table, path.stem)
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from None


def _known(where: str, table: Any, keys: tuple[str, ...]) -> dict[str, Any]:
    check(isinstance(table, dict), where, table, "must be a table")
    known_keys(table, keys, f"{where}: ")
    return table


def _recipe(table: dict[str, Any], stem: str) -> Recipe:
    known_keys(table, _TOP)
    race = _known("race", table.get("race", {}), _RACE)
    lanes = race.get("lanes", [])
    named = isinstance(lanes, list) and all(isinstance(lane, str) and lane for lane in lanes)
    check(named, "race.lanes", lanes, 'must be a list such as ["static:8", "continuous"]')
    groups = table.get("requests")
    if not isinstance(groups, list) or not groups:
        raise InvalidInput("has no requests; write a table [[requests]] with count, prompt_tokens and output_tokens")
    made = tuple(_group(f"requests[{i}]", group) for i, group in enumerate(groups))
    many = sum(group.count * group.turns for group in made)
    check(many <= MOST_REQUESTS, "requests", many, f"are at most {MOST_REQUESTS:,} in all, each turn counting")
    kv_tokens = tokens("race.kv_tokens", race["kv_tokens"]) if "kv_tokens" in race else None
    return Recipe(
        text("name", table.get("name", stem)),
        made,
        text("title", table.get("title", "")),
        text("description", table.get("description", "")),
        whole("seed", table.get("seed", 0), 0, MOST_SEED),
        whole("concurrency", table["concurrency"], 1, MOST_TOKENS) if "concurrency" in table else None,
        Suggestion(kv_tokens, tuple(lanes)),
    )


def _group(where: str, table: Any) -> Group:
    _known(where, table, _GROUP)
    examples = whole(f"{where}.examples", table.get("examples", 0), 0, MOST_EXAMPLES)
    again = table.get("again", False)
    check(isinstance(again, bool), f"{where}.again", again, "must be true or false")
    left_out = {"prompt_tokens", "output_tokens"} if again else {"prompt_tokens"} if examples else set()
    for key in sorted({"count", "prompt_tokens", "output_tokens"} - left_out):
        if key not in table:
            raise InvalidInput(f"{where}: has no {key}; give one, e.g. {key} = 64")
    turns = whole(f"{where}.turns", table.get("turns", 1), 1, 100)
    for key in table:
        if key in left_out or ((again or examples) and key == "turns") or (again and key == "examples"):
            raise InvalidInput(f"{where}.{key}: leave it out; again, examples and turns each stand alone")
    for key in ("pause", "answer_tokens"):
        if (key in table) != (turns > 1):
            remedy = "give it with turns above 1, or leave it out" if key in table else "conversations of turns need it"
            raise InvalidInput(f"{where}.{key}: {remedy}")
    chat = table.get("chat")
    check(chat is None or isinstance(chat, bool), f"{where}.chat", chat, "must be true or false")
    seconds = "must be from 0 to 86,400 seconds"
    try:
        named = {"arrivals": "kind", "rate": "rate", "burstiness": "burstiness", "start": "start"}
        times = Times(**{name: table[key] for key, name in named.items() if key in table})
    except InvalidInput as error:
        raise InvalidInput(f"{where}.{error}") from None
    return Group(
        whole(f"{where}.count", table["count"], 1, MOST_REQUESTS),
        times,
        None if again or examples else read_lengths(f"{where}.prompt_tokens", table["prompt_tokens"]),
        None if again else read_lengths(f"{where}.output_tokens", table["output_tokens"]),
        tokens(f"{where}.system_tokens", table.get("system_tokens", 0), 0),
        turns,
        number(f"{where}.pause", table.get("pause", 0.0), 0.0, 86_400.0, seconds),
        read_lengths(f"{where}.answer_tokens", table["answer_tokens"]) if turns > 1 else None,
        number(f"{where}.temperature", table.get("temperature", 0.0), 0.0, 100.0, "must be between 0 (greedy) and 100"),
        chat,
        text(f"{where}.label", table.get("label", "")),
        _grammar(where, table),
        again,
        examples,
        whole(f"{where}.priority", table.get("priority", 0), -MOST_PRIORITY, MOST_PRIORITY),
        text(f"{where}.adapter", table.get("adapter", "")),
    )


def _grammar(where: str, table: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    """What the output is held to; a JSON schema may be named that is shipped."""
    given = {name: table[name] for name in _GRAMMARS if name in table}
    if given.get("json_schema") in SCHEMAS:
        given["json_schema"] = load_schema(given["json_schema"])
    try:
        params = SamplingParams(**given)
    except InvalidInput as error:
        raise InvalidInput(f"{where}.{error}") from None
    return tuple((name, getattr(params, name)) for name in given)


# From a recipe to its workload.


def cook(recipe: Recipe, counter: TokenCounter) -> Workload:
    """Draws lengths and times and writes the prompts: a function of the recipe, its seed and the counter.

    Every request runs to its last token (ignore_eos), so that all modes do the same work; one that is held to a grammar
    ends with it. Raises InvalidInput when a
    request does not fit the model's context.
    """
    arrivals = [
        arrival for i, group in enumerate(recipe.groups) for arrival in _arrivals(group, i, recipe.seed, counter)
    ]
    about = recipe.description, recipe.title, recipe.suggested
    return Workload(recipe.name, tuple(arrivals), recipe.concurrency, *about, estimated=not counter.exact)


def _arrivals(group: Group, index: int, seed: int, counter: TokenCounter) -> Iterator[Arrival]:
    def chance(what: str) -> Random:
        """A stream of its own for each thing that is drawn, so that changing one leaves the others as they are."""
        return Random(f"{seed}/{index}/{what}")

    limit = counter.context or MOST_TOKENS

    def refuse_over(size: int, output: int) -> None:
        if size + output > limit:
            raise InvalidInput(
                f"requests[{index}]: a prompt of about {size:,} tokens and an output of {output:,} exceed the "
                f"model's context of {limit:,}; lower prompt_tokens, output_tokens, turns or examples"
            )

    refuse_over(group.system, 0)
    chat = counter.chat if group.chat is None else group.chat
    lengths, outputs, words = chance("prompt"), chance("output"), chance("words")
    system: list[Message] = []
    if group.system:
        told = text_of(group.system, counter, chance("system"), stories().system)
        system = [{"role": "system", "content": told}]
    params = SamplingParams(temperature=group.temperature, ignore_eos=not group.grammar, **dict(group.grammar))
    params = params.with_(priority=group.priority, adapter=group.adapter)
    before, openings = system, asks(group.count, seed + index)
    if group.examples:
        before, openings = with_examples(system, group.examples, group.count, chance("examples"))
    known = told_stories(group.count, chance("again")) if group.again else []
    times = group.times.draw(group.count, chance("times"))
    for place, (opening, start) in enumerate(zip(openings, times, strict=True)):
        messages = list(before)
        held = group.system  # tokens of the conversation so far, as they were asked for
        for turn in range(group.turns):
            output = counter.count(known[place][1]) if group.output is None else group.output.draw(outputs)
            length = group.prompt.draw(lengths) if group.prompt is not None else counter.count(opening)
            held += length
            refuse_over(held, output)  # before it is written
            if turn:
                opening = stories().follow_ups[(turn - 1) % len(stories().follow_ups)]
            if group.again:
                messages += asked_again(*known[place])
            else:
                messages.append({"role": "user", "content": text_of(length, counter, words, opening)})
            prompt: Prompt = list(messages) if chat else "\n\n".join(m["content"] for m in messages)
            refuse_over(counter.bound(prompt), output)
            label = group.label if group.turns == 1 else f"{group.label} turn {turn + 1}".strip()
            yield Arrival(start + turn * group.pause, prompt, params.with_(max_tokens=output), label)
            if group.answer is not None:
                length = group.answer.draw(lengths)
                held += length
                refuse_over(held, 0)
                messages.append({"role": "assistant", "content": text_of(length, counter, words)})


def changed(recipe: Recipe, times: Callable[[Times], Times], count: int | None, chat: bool | None) -> Recipe:
    """A copy with what is given changed: `count` and the times in the first group alone. Raises InvalidInput."""
    first, *others = recipe.groups
    first = replace(first, times=times(first.times))
    if count is not None:
        first = replace(first, count=whole("count", count, 1, MOST_REQUESTS))
    groups = (group if chat is None else replace(group, chat=chat) for group in (first, *others))
    return replace(recipe, groups=tuple(groups))
