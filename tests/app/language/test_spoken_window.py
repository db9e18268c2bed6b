"""The window in a language that there is not: what can be read in it without an accent is in no catalog."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.app.language.pseudo_window import accented

ROOT = Path(__file__).resolve().parents[3]
ROOMS = "chat compare desktop inside models play playback quality runs sampling stage window".split()
WORD = re.compile(r"[A-Za-z]{2,}")
NAMES = re.compile(
    r"\b(Batchscope|CPU|GPU|RTX|KV|TTFT|ITL|TPOT|HF_HUB_OFFLINE|d_model|LlamaForCausalLM|apache"  # names
    r"|demo( stories)?|Ctrl|Shift|Alt|Esc|Del|Return|Enter|Space|Left|Right|Up|Down|Home|Drag|F\d+"  # keys
    r"|[GMK]B|ms|GFLOP|PNG|SVG|CSV|JSON|Markdown"  # units, and kinds of files
    r"|float32|bfloat16|float16|int8|fp8|nf4|AWQ|torchao|double|no outliers"  # precisions
    r"|recompute|sequential|static|dynamic|continuous-padded|[Cc]ontinuous|chunked|disaggregated"  # modes
    r"|Reserved in advance|Paged|With(out)? drafts|22-beams|09-fragmentation|23-speculation|AMD EPYC)\b"
    r"|\{fox\|owl\}|\[A-Z\]\[a-z\]\+ the \(fox\|owl\)"  # what can be written, by example
    r"|^Export(\.\.\.)?$"  # pyqtgraph's
)
"""The same in every language, or Qt's to translate."""
NOT_OURS = {
    "settings_language": "each language in its own words",
    "settings_stream_font": "fonts",
    "settings_folder|(server|lane)_url": "paths and addresses",
    "model_source|models_(title|place|copy)": "models",
    r"chat_example_\d": "prompts for the demo model, which speaks English",
    "race_order|race_order_note|quality_text": "the engine's words",
    r"(model|lane)_quantization|fit_(load_)?(none|int8|nf4|awq|torchao|mxfp4)\S*": "the engine's schemes",
    "output_(regex|schema|schemas)": "expressions",
    "beam_tree|step_rows|stream_strip": "what a model said",
    "qt_.*|Scroll(Left|Right)Button": "Qt's own, in Qt's own catalogs",
}
"""Widgets by their names, and what stands in them."""


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, str, str, str, str]]:
    """(room, class, name, what, text) of all that can be read in the window."""
    command = [sys.executable, "-m", "tests.app.language.pseudo_window", str(tmp_path_factory.mktemp("pseudo"))]
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    environment = os.environ | {"PYTHONPATH": path}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    return [tuple(each) for each in json.loads(done.stdout)]


def left_over(name: str, text: str) -> str:
    """The text without what need not be translated."""
    if re.fullmatch("|".join(NOT_OURS), name):
        return ""
    return NAMES.sub("", text)


@pytest.mark.parametrize("room", ROOMS)
def test_every_word_of_a_room_has_been_through_a_catalog(room: str, read: list[tuple[str, ...]]) -> None:
    texts = [(kind, name, what, text) for place, kind, name, what, text in read if place == f"app.{room}"]
    assert texts, "nothing was on show"
    plain = {(kind, name, what, text) for kind, name, what, text in texts if WORD.search(left_over(name, text))}
    assert not plain


def test_what_was_read_is_menus_dialogs_and_painted_words_too(read: list[tuple[str, ...]]) -> None:
    """Else the test above would pass on an empty window."""
    found = {(name, what) for _, _, name, what, _ in read} | {(kind, what) for _, kind, _, what, _ in read}
    wanted = {("QAction", "text"), ("QMenu", "title"), ("settings_zoom", "accessibleName"), ("cursor_words", "painted")}
    wanted |= {("shortcuts_search", "placeholderText"), ("welcome_0", "text"), ("search_actions", "toolTip")}
    wanted |= {(name, "painted") for name in ("model_bill_bar", "memory_ledger", "lane_figures", "step_sheet")}
    assert wanted <= found, "with a model's bill, a run and a race"
    assert {accented("weights"), accented("others")} <= {
        text for _, _, name, _, text in read if name == "model_bill_bar"
    }
    assert accented("Full screen") in {text for _, _, _, _, text in read}
