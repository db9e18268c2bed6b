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
from app.models.items import Section
from app.playback.bridge import Bridge
from app.session.session import Session
from app.ui import theme
from app.window.application import make_application
from app.window.main_window import MODELS, MainWindow
from engine import EngineConfig, ModelSpec

SIZE, TALL = (1440, 860), (1440, 1080)
PATIENCE = 600.0  # seconds
LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
    "max_position_embeddings": 131072, "tie_word_embeddings": False, "dtype": "bfloat16",
}  # fmt: skip


def shape_of_llama(folder: Path) -> None:
    """A model folder without weights: the data of its safetensors is a hole in the file."""
    folder.mkdir(parents=True)
    hidden, wide, keys, words = 4096, 14336, 8 * 128, 128256
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (words, hidden), "model.norm.weight": (hidden,), "lm_head.weight": (words, hidden),
    }  # fmt: skip
    for layer in range(32):
        for name, shape in (
            ("self_attn.q_proj", (hidden, hidden)), ("self_attn.k_proj", (keys, hidden)),
            ("self_attn.v_proj", (keys, hidden)), ("self_attn.o_proj", (hidden, hidden)),
            ("mlp.gate_proj", (wide, hidden)), ("mlp.up_proj", (wide, hidden)), ("mlp.down_proj", (hidden, wide)),
            ("input_layernorm", (hidden,)), ("post_attention_layernorm", (hidden,)),
        ):  # fmt: skip
            shapes[f"model.layers.{layer}.{name}.weight"] = shape
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


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.1)


async def draw(folder: Path, shape: Path, light: bool) -> None:
    session, bridge = Session(), Bridge()
    window = MainWindow(session, bridge)
    window.keeps_layout = False
    window.resize(*SIZE)
    window.show()
    window.page.complete()
    window.fill_menu()
    theme.set_theme("light" if light else "dark")
    ending = "-light" if light else ""
    await session.load(ModelSpec("demo"), EngineConfig())
    window.show_page(MODELS)
    page = window.models
    assert page is not None
    page.open_folder(shape)

    def shown(section: Section, source: str) -> bool:
        subject = page.subject
        return bool(
            subject is not None
            and (subject.item.section, subject.item.source) == (section, source)
            and subject.info is not None
            and page.fit.bills is not None
        )

    await until(lambda: shown(Section.FOLDERS, str(shape)))
    await asyncio.sleep(1)
    window.grab().save(str(folder / f"models-fit{ending}.png"))
    page.list.choose((Section.SHIPPED.value, "demo", None))
    await until(lambda: shown(Section.SHIPPED, "demo"))
    window.resize(*TALL)
    page.show_section(page.quality.panel)
    await asyncio.sleep(1)
    page.quality.panel.begin.click()
    await until(lambda: page.quality.running)
    await until(lambda: not page.quality.running)
    await asyncio.sleep(1)
    window.grab().save(str(folder / f"models-quality{ending}.png"))
    closed = asyncio.get_running_loop().create_future()
    window.closed.connect(lambda: closed.set_result(None))
    window.close()
    await closed


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
