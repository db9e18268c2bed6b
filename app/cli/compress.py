"""`batchscope compress`: a prompt made shorter, and what that buys and costs."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from app.cli.shared.columns import columns
from app.cli.shared.options import (
    check_model,
    json_schema,
    kv_memory_option,
    listed,
    model_options,
    quiet,
    spec_of,
    threads_option,
    whole,
)
from app.cli.shared.progress import job_bar
from app.compression.words import bound_words, head, note_words, rows_of, runs_of
from app.interrupts import heard
from engine import EngineConfig, InvalidInput, ModelSpec, compare_compressed, compress
from engine.compression import KEEPS, METHODS, UNITS, Compressed, Effect
from engine.config import Prompt
from engine.core import import_engine

LONGEST = 1 << 22  # bytes of a prompt
STRUCK, PLAIN = "\x1b[2;9m", "\x1b[0m"


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    told = "\n".join(f"  {name:<12} {words}" for names in (METHODS, UNITS, KEEPS) for name, words in names.items())
    to = commands.add_parser(
        "compress",
        help="make a prompt shorter, and measure what that saves and how far the answer moves",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=f"methods, units, and what is kept whole:\n{told}\n\n{bound_words()}.",
    )
    schema = "fields as a JSON schema says, a file or one that is shipped: story"
    keep = f"what is kept whole: some of {', '.join(KEEPS)}, or nothing (default: all of them)"
    by = "the model that scores the words (default: the one that answers); demo-draft is the demo's draft"
    to.add_argument("prompt", nargs="?", help="the prompt (default: --file, or standard input)")
    to.add_argument("--file", type=Path, help="a text file, or a .json file with a list of chat messages")
    to.add_argument("--system", metavar="TEXT", help="instructions before the prompt")
    to.add_argument("--raw", action="store_true", help="send the prompt as plain text, without the chat template")
    to.add_argument("--method", choices=METHODS, help="default: information, or fields where some are given")
    to.add_argument("--ratio", type=float, default=0.5, metavar="R", help="share of tokens that stays (default: 0.5)")
    to.add_argument("--unit", default="words", choices=UNITS, help="what is kept or struck out (default: words)")
    fields = to.add_mutually_exclusive_group()
    fields.add_argument("--fields", type=listed, metavar="A,B,…", help="fields that the model fills in")
    fields.add_argument("--json-schema", dest="fields", type=json_schema, metavar="FILE|NAME", help=schema)
    to.add_argument("--keep", type=listed, metavar="A,B,…", help=keep)
    to.add_argument("--scorer", type=ModelSpec, metavar="MODEL", help=by)
    to.add_argument(
        "--answer", type=whole, default=32, metavar="N", help="tokens of the compared answers (default: 32)"
    )
    to.add_argument("--no-measure", dest="measured", action="store_false", help="compress only")
    model_options(to)
    kv_memory_option(to)
    threads_option(to)
    to.add_argument("--json", action="store_true", help="print everything as JSON")
    to.set_defaults(command=run_compress)


def run_compress(options: argparse.Namespace) -> int:
    spec, given = spec_of(options), _given(options)
    if spec.adapters:
        raise InvalidInput(f"adapter={spec.adapters[0]}: prompts are compressed for the model as it is; leave it out")
    method = options.method or ("fields" if options.fields else "information")
    if (method == "fields") is (options.fields is None):
        raise InvalidInput("--fields: are what --method fields fills in; give both, or neither")
    for model in filter(None, (spec, options.scorer)):
        check_model(model)
    keep = () if options.keep == ["nothing"] else tuple(KEEPS) if options.keep is None else tuple(options.keep)
    how = {"ratio": options.ratio, "unit": options.unit, "fields": options.fields, "keep": keep}
    effect = None
    with job_bar(quiet(options), "nothing was compressed", "choose a smaller model") as (bar, interrupted):
        with heard():
            engine_type = import_engine()
        watched: dict[str, Any] = {"report": bar.loading, "cancelled": interrupted}
        config, loads = EngineConfig(max_running=4, kv_memory=options.kv_memory), {"threads": options.threads}
        with engine_type(spec, config, progress=bar.loading, cancelled=interrupted, **loads) as engine:
            prompt = _prompt(given, options, engine.card.chat)
            made = compress(engine, prompt, method=method, scorer=options.scorer, **how, **watched)
            if options.measured:
                effect = compare_compressed(engine, prompt, made.prompt, answer=options.answer, **watched)
            name = engine.card.name
    if options.json:
        print(json.dumps(as_json(made, effect), indent=1, ensure_ascii=False))
    else:
        print(as_text(made, effect, name))
    return 0


def _given(options: argparse.Namespace) -> Prompt:
    """The prompt as it was given: text, or a file's messages."""
    if options.prompt is not None and options.file is not None:
        raise InvalidInput("--file: a prompt is given too; give one of the two")
    if options.prompt is not None:
        return str(options.prompt)
    if options.file is None:
        if sys.stdin.isatty():
            raise InvalidInput("prompt: none is given; write it behind the command, or give --file FILE")
        if not (text := sys.stdin.read(LONGEST)).strip():
            raise InvalidInput("prompt: standard input is empty; write it behind the command, or give --file FILE")
        return text
    try:
        with open(options.file, encoding="utf-8") as file:
            text = file.read(LONGEST)
        found: Prompt = json.loads(text) if options.file.suffix == ".json" else text
    except (OSError, ValueError) as error:
        raise InvalidInput(f"cannot read {options.file}: {error}") from error
    if not isinstance(found, str) and not (isinstance(found, list) and all(isinstance(m, dict) for m in found)):
        raise InvalidInput(
            f'{options.file}: give a list of chat messages, such as [{{"role": "user", "content": "…"}}]'
        )
    return found


def _prompt(given: Prompt, options: argparse.Namespace, chat: bool) -> Prompt:
    """As it is sent: a chat where the model has a template."""
    if not isinstance(given, str) or options.raw or not chat:
        if options.system:
            raise InvalidInput("--system: is of a prompt in a chat template; leave it out, or --raw")
        return given
    system = [{"role": "system", "content": options.system}] if options.system else []
    return [*system, {"role": "user", "content": given}]


def as_json(made: Compressed, effect: Effect | None) -> dict[str, Any]:
    pieces = [
        {"text": p.text, "message": p.message, "bits": p.bits, "tokens": p.tokens, "fixed": p.fixed, "kept": kept}
        for p, kept in zip(made.pieces, made.kept)
    ]
    names = ("method", "original", "prompt", "text", "tokens_before", "tokens_after", "scored_by", "seconds")
    told = {name: getattr(made, name) for name in names} | {"pieces": pieces}
    return told | {"effect": effect.to_json() if effect is not None else None}


def as_text(made: Compressed, effect: Effect | None, name: str) -> str:
    """The prompt with what is struck out, what stands in its place, and the table."""
    terminal = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    struck = (STRUCK, PLAIN) if terminal else ("~~", "~~")
    lines = ["".join(text if stays else _between(text, *struck) for text, stays in runs_of(made.pieces, made.kept)), ""]
    if made.text:
        lines += [f"in its place: {made.text}", ""]
    by = f", scored by {made.scored_by}" if made.method == "information" else ""
    saved = f"{made.tokens_before:,} tokens become {made.tokens_after:,} (× {made.ratio:.2f})"
    lines.append(f"{name}: {saved} by {made.method}{by}, in {made.seconds:.2f} s")
    if effect is not None:
        lines += ["", *columns([head(), *rows_of(effect)], right=(1, 2)), "", note_words(effect), f"{bound_words()}."]
        lines += ["", f"original:   {_line(effect.before.text)}", f"compressed: {_line(effect.after.text)}"]
    return "\n".join(lines)


def _between(text: str, begin: str, end: str) -> str:
    """The text struck out, but for the space around it."""
    bare = text.strip()
    if not bare:
        return text
    at = text.index(bare)
    return text[:at] + begin + bare + end + text[at + len(bare) :]


def _line(text: str) -> str:
    return " ".join(text.split())
