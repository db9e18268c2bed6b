"""Draws the README's pictures of the Models page: what fits, and what each quantization of the demo model costs.

    python packaging/models_pictures.py [FOLDER] [--light]

The first is of a model of Llama-3.1-8B's shape: its config, and safetensors whose header is all that is on the disk,
since no weight is read to tell what fits. The second is measured.
"""

import argparse
import asyncio
import json
import os
import shutil
import struct
import tempfile
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

import qasync

import resources
from app.models.fit.breakdown import ELSEWHERE
from app.models.items import Section
from app.models.page import ModelsPage
from app.ui.look import theme
from app.window.main_window import MODELS
from app.window.start.application import make_application, unattended_window, until
from engine import EngineConfig, ModelSpec

SIZE, TALL = (1440, 860), (1440, 1080)
PATIENCE = 600.0  # seconds
HIDDEN, WIDE, KEYS, WORDS, LAYERS = 4096, 14336, 8 * 128, 128256, 32
LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": HIDDEN,
    "intermediate_size": WIDE,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": WORDS,
    "max_position_embeddings": 131072,
    "tie_word_embeddings": False,
    "dtype": "bfloat16",
}
LAYER = {
    "self_attn.q_proj": (HIDDEN, HIDDEN),
    "self_attn.k_proj": (KEYS, HIDDEN),
    "self_attn.v_proj": (KEYS, HIDDEN),
    "self_attn.o_proj": (HIDDEN, HIDDEN),
    "mlp.gate_proj": (WIDE, HIDDEN),
    "mlp.up_proj": (WIDE, HIDDEN),
    "mlp.down_proj": (HIDDEN, WIDE),
    "input_layernorm": (HIDDEN,),
    "post_attention_layernorm": (HIDDEN,),
}


def shape_of_llama(folder: Path) -> None:
    """A model folder without weights: the data of its safetensors is a hole in the file."""
    folder.mkdir(parents=True)
    whole = {"model.embed_tokens": (WORDS, HIDDEN), "model.norm": (HIDDEN,), "lm_head": (WORDS, HIDDEN)}
    layers = {f"model.layers.{i}.{name}": shape for i in range(LAYERS) for name, shape in LAYER.items()}
    shapes = {f"{name}.weight": shape for name, shape in (whole | layers).items()}
    header, at = {}, 0
    for name, shape in shapes.items():
        size = 2 * prod(shape)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + at)
    (folder / "config.json").write_text(json.dumps(LLAMA), encoding="utf-8")
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(resources.path("models/stories-5m") / name, folder)


async def done(condition: Callable[[], bool]) -> None:
    if not await until(condition, PATIENCE):
        raise TimeoutError


async def draw(folder: Path, shape: Path, light: bool) -> None:
    async with unattended_window(SIZE) as window:
        window.page.complete()
        window.fill_menu()
        theme.set_theme("light" if light else "dark")
        ending = "-light" if light else ""
        await window.session.load(ModelSpec("demo"), EngineConfig())
        window.show_page(MODELS)
        page = window.models
        assert page is not None
        page.open_folder(shape)
        await done(lambda: shown(page, Section.FOLDERS, str(shape)))
        await asyncio.sleep(1)
        window.grab().save(str(folder / f"models-fit{ending}.png"))
        page.fit.device.set_value(f"{ELSEWHERE}RTX 4090")
        await asyncio.sleep(1)
        window.grab().save(str(folder / f"models-elsewhere{ending}.png"))
        page.list.choose((Section.SHIPPED.value, "demo", None))
        await done(lambda: shown(page, Section.SHIPPED, "demo"))
        window.resize(*TALL)
        page.show_section(page.quality.panel)
        await asyncio.sleep(1)
        page.quality.panel.begin.click()
        await done(lambda: page.quality.measuring.running)
        await done(lambda: not page.quality.measuring.running)
        await asyncio.sleep(1)
        window.grab().save(str(folder / f"models-quality{ending}.png"))


def shown(page: ModelsPage, section: Section, source: str) -> bool:
    """Whether the page shows this model, read and reckoned."""
    subject = page.subject
    if subject is None or subject.info is None or page.fit.bills is None:
        return False
    return (subject.item.section, subject.item.source) == (section, source)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("folder", nargs="?", type=Path, default=Path("packaging/screenshots"))
    options.add_argument("--light", action="store_true")
    given = options.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        os.environ |= {"BATCHSCOPE_DATA": f"{scratch}/data", "HF_HOME": f"{scratch}/hf", "HOME": scratch}
        shape = Path(scratch) / "models" / "Llama-3.1-8B-shape"
        shape_of_llama(shape)
        make_application()
        qasync.run(draw(given.folder, shape, given.light))


if __name__ == "__main__":
    main()
