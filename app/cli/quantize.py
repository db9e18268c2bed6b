"""`batchscope quantize`: an AWQ checkpoint of a model."""

from __future__ import annotations

import argparse
import sys
from contextlib import suppress
from pathlib import Path

from app.cli.shared.options import model_options, whole
from app.cli.shared.progress import job_bar
from app.words import bytes_words
from engine import InvalidInput, ModelSpec, quantize_to_awq
from engine.memory import model_info
from engine.quality import GROUPS, TEXTS, AwqRecipe, check_recipe, suited_calibration

ABOUT = (
    "Makes an AWQ checkpoint with autoawq (pip install 'batchscope[awq]'): a folder that loads here and in other "
    "engines. A minute for the demo model, hours for each billion of weights without a GPU. Ctrl+C stops it and leaves "
    "nothing behind."
)
CALIBRATION = "text like that which the model will meet, a sample a paragraph or line"
RUNTIME = 1.2e9  # bytes: torch, and the tensors that autoawq compares in pieces


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    does = "make a 4-bit AWQ checkpoint of a model, with calibration"
    quantize = commands.add_parser("quantize", help=does, description=ABOUT)
    text = f"{CALIBRATION}: a file, or one of {', '.join(TEXTS)} (default: the one that suits the model)"
    group = f"inputs that share a scale: {', '.join(map(str, GROUPS))} (default: 128)"
    quantize.add_argument("model", metavar="MODEL", help="demo, a model folder, or a hub id that was downloaded before")
    quantize.add_argument("--to", choices=("awq",), default="awq", help="the format (default: awq)")
    quantize.add_argument("--calibration", metavar="FILE|NAME", help=text)
    quantize.add_argument("--out", type=Path, required=True, metavar="DIR", help="a folder that does not exist")
    quantize.add_argument("--group", type=int, default=128, metavar="N", help=group)
    quantize.add_argument("--samples", type=whole, default=128, metavar="N", help="most samples used (default: 128)")
    quantize.add_argument("--length", type=whole, default=512, metavar="N", help="tokens a block (default: 512)")
    model_options(quantize, "--revision")
    quantize.set_defaults(command=run_quantize)


def run_quantize(options: argparse.Namespace) -> int:
    text = options.calibration or suited_calibration(options.model)
    given = {name: getattr(options, name) for name in ("revision", "group", "samples", "length")}
    recipe = AwqRecipe(options.model, text, options.out, **given)
    check_recipe(recipe)
    _say_needs(recipe)
    with job_bar(False, "nothing was left behind", "fewer --samples take less") as (bar, interrupted):
        folder = quantize_to_awq(recipe, bar.loading, interrupted)
    made = model_info(ModelSpec(str(folder)))
    print(f"{folder}\n{_sizes(recipe, made.weight_bytes)}")
    print(f"load it with --model {folder}; measure it with: batchscope quality --model {folder}")
    return 0


def _say_needs(recipe: AwqRecipe) -> None:
    """Of memory, in words, on stderr. Near what was measured for a model of 20 MB and 16,000 tokens."""
    with suppress(InvalidInput):
        info = model_info(ModelSpec(recipe.source, revision=recipe.revision))
        item = 4 if info.dtype == "float32" else 2
        inputs = recipe.samples * recipe.length * (10 * info.hidden + 3 * info.mlp) * item
        words = bytes_words(info.weight_bytes + inputs + RUNTIME)
        print(f"batchscope: takes up to ~{words} of memory; fewer --samples take less", file=sys.stderr)


def _sizes(recipe: AwqRecipe, made: int) -> str:
    try:
        before = model_info(ModelSpec(recipe.source, revision=recipe.revision)).weight_bytes
    except InvalidInput:  # a hub id
        return f"weights {bytes_words(made)}"
    return f"weights {bytes_words(made)}, of {bytes_words(before)} before"
