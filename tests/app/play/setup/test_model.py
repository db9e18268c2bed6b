"""The model panel: what is chosen there is what is loaded, and what is loaded is what it shows."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QStandardItemModel
from PySide6.QtTest import QTest
from pytestqt.qtbot import QtBot

import resources
from app.play.setup.model import SERVER, ModelPanel
from app.session.session import Session
from app.window.main_window import MainWindow
from engine import ModelSpec, Parallel
from engine.checkpoints import inspect_model
from engine.config import OF_LAYERS
from engine.core import Card
from engine.memory import rank_counts
from tests.engine.tiny_models import TINY_MODELS, save_tiny_model

WAIT = 60_000


@pytest.mark.parametrize(
    "spec",
    [
        ModelSpec("demo"),
        ModelSpec("demo", "nf4-double", "bfloat16", "cpu"),
        ModelSpec("demo-draft", "int8"),
        ModelSpec("/models/llama", "awq", "float16", "cuda:1"),
        ModelSpec("owner/name", "none", revision="v1.0"),
        ModelSpec("owner/name", trust_remote_code=True),
        ModelSpec("demo", parallel=Parallel(2)),
        ModelSpec("demo", parallel=Parallel(3)),
        ModelSpec("demo", parallel=Parallel(4, sequence=True)),
        ModelSpec("demo", parallel=Parallel(pipeline=2)),
        ModelSpec("demo", parallel=Parallel(pipeline=3, micro_batches=6)),
        ModelSpec("demo", kv_heads="all"),
        ModelSpec("demo", kv_heads=8),
    ],
    ids=str,
)
def test_a_model_that_is_shown_is_chosen_just_so(qtbot: QtBot, session: Session, spec: ModelSpec) -> None:
    panel = ModelPanel(session)
    qtbot.addWidget(panel)
    panel.set_spec(spec)
    assert panel.spec() == spec


def test_code_of_another_model_is_not_trusted_with_it(qtbot: QtBot, session: Session) -> None:
    panel = ModelPanel(session)
    qtbot.addWidget(panel)
    panel.set_spec(ModelSpec("owner/name", trust_remote_code=True))
    panel.path.setText("owner/other")
    assert panel.spec() == ModelSpec("owner/other")


def test_quantizations_that_a_model_cannot_have_are_greyed_and_say_why(qtbot: QtBot, session: Session) -> None:
    panel = ModelPanel(session)
    qtbot.addWidget(panel)

    def offered() -> dict[str, str]:
        model = panel.quantization.model()
        assert isinstance(model, QStandardItemModel)
        return {
            str(panel.quantization.itemData(i)): model.item(i).toolTip()
            for i in range(panel.quantization.count())
            if model.item(i).isEnabled()
        }

    qtbot.waitUntil(lambda: "Weights" in offered()["awq"], timeout=WAIT)
    assert set(offered()) == set(OF_LAYERS), "the demo has no experts"
    panel.set_spec(ModelSpec(str(resources.path("models/stories-5m-awq"))))
    qtbot.waitUntil(lambda: set(offered()) == {"none", "awq"}, timeout=WAIT)


def test_heads_can_be_repeated_where_they_are_shared_on_one_device(
    qtbot: QtBot, session: Session, tmp_path: Path
) -> None:
    panel = ModelPanel(session)
    qtbot.addWidget(panel)
    qtbot.waitUntil(lambda: "8 query heads share 4" in panel.kv_heads.toolTip(), timeout=WAIT)
    assert panel.kv_heads.isEnabled()
    panel.set_spec(ModelSpec("demo", device="cpu", kv_heads="all"))
    qtbot.waitUntil(lambda: "KV 12 KB a token" in panel.facts.text(), timeout=WAIT)
    assert "repeated is not split" in panel.devices.toolTip()
    panel.set_spec(ModelSpec("demo", device="cpu", parallel=Parallel(2)))
    qtbot.waitUntil(lambda: "split has the heads that are stored" in panel.kv_heads.toolTip(), timeout=WAIT)
    assert not panel.kv_heads.isEnabled()
    save_tiny_model(TINY_MODELS["gpt2"], tmp_path / "gpt2")
    panel.set_spec(ModelSpec(str(tmp_path / "gpt2"), device="cpu"))
    qtbot.waitUntil(lambda: "each of this model's 4 query heads has its own" in panel.kv_heads.toolTip(), timeout=WAIT)
    assert not panel.kv_heads.isEnabled()
    panel.set_spec(ModelSpec("demo", "awq", device="cpu", kv_heads="all"))
    qtbot.waitUntil(lambda: "checkpoint is quantized" in panel.error.text(), timeout=WAIT)


def test_devices_are_greyed_where_a_model_cannot_be_split_and_say_why(
    qtbot: QtBot, session: Session, tmp_path: Path
) -> None:
    panel = ModelPanel(session)
    qtbot.addWidget(panel)
    model = panel.devices.model()
    assert isinstance(model, QStandardItemModel)

    def offered() -> list[str]:
        return [panel.devices.itemData(i) for i in range(panel.devices.count()) if model.item(i).isEnabled()]

    save_tiny_model(TINY_MODELS["gpt2"], tmp_path / "gpt2")
    demo = rank_counts(inspect_model(ModelSpec("demo")))
    panel.set_spec(ModelSpec("demo", device="cpu"))
    qtbot.waitUntil(lambda: "8:pp" not in offered(), timeout=WAIT)
    by_heads = [str(n) for n in (1, 2, 4, 8) if n in demo]
    assert offered() == [*by_heads, *(f"{n}:sp" for n in by_heads[1:]), "2:pp", "4:pp"]
    assert panel.devices.isEnabled()
    assert model.item(panel.devices.findData("2:ep")).toolTip() == "This model has no experts to share out."
    assert "do not divide" in model.item(panel.devices.findData("8:sp")).toolTip()
    assert "a stage needs one" in model.item(panel.devices.findData("8:pp")).toolTip()
    panel.set_spec(ModelSpec(str(tmp_path / "gpt2"), device="cpu"))
    qtbot.waitUntil(lambda: offered() == ["1", "2:pp"], timeout=WAIT)
    assert "cannot split model type 'gpt2'" in model.item(1).toolTip()
    panel.set_spec(ModelSpec("demo-moe", device="cpu"))
    qtbot.waitUntil(lambda: "2:ep" in offered(), timeout=WAIT)
    panel.set_spec(ModelSpec("demo", "awq", device="cpu"))
    qtbot.waitUntil(lambda: offered() == ["1", "2", "2:sp", "2:pp", "4:pp"], timeout=WAIT)  # by the groups of its codes
    panel.set_spec(ModelSpec("demo", "int8", device="cpu"))
    qtbot.waitUntil(lambda: "4:sp" in offered(), timeout=WAIT)
    panel.set_spec(ModelSpec("demo", device="cpu", kv_heads="all"))
    qtbot.waitUntil(lambda: "repeated" in panel.devices.toolTip(), timeout=WAIT)
    assert offered() == ["1"]
    assert not panel.devices.isEnabled(), "one device is all there is"


def test_a_model_is_split_over_as_many_gpus_as_there_are(
    qtbot: QtBot, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = SimpleNamespace(free=9 << 30, total=24 << 30)
    answers = {"MemoryInfo": told, "CudaComputeCapability": (8, 6), "DisplayActive": 0}
    asked = {f"nvmlDeviceGet{what}": lambda handle, told=told: told for what, told in answers.items()}
    card = Card(SimpleNamespace(NVMLError=OSError, **asked), None)
    monkeypatch.setattr("app.session.memory.estimate.nvidia_driver", lambda: True)
    monkeypatch.setattr("app.session.memory.estimate.cards", lambda: [card, card])
    panel = ModelPanel(session)
    qtbot.addWidget(panel)
    model = panel.devices.model()
    assert isinstance(model, QStandardItemModel)
    panel.set_spec(ModelSpec("demo", device="cuda"))

    def words(key: str) -> str:
        return model.item(panel.devices.findData(key)).toolTip()

    qtbot.waitUntil(lambda: "GPU" in words("4"), timeout=WAIT)
    assert words("4") == words("4:pp") == "Each rank takes a GPU of its own; this machine has 2."
    assert words("2") == words("2:sp") == words("2:pp") == ""


def test_the_focus_comes_back_to_an_address_where_no_server_is(qtbot: QtBot, window: MainWindow) -> None:
    panel = window.page.model
    panel.source.set_value(SERVER)
    panel.server.url.setText("127.0.0.1:1")
    panel.server.url.setFocus()
    QTest.keyClick(panel.server.url, Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: "127.0.0.1:1" in panel.error.text(), timeout=WAIT)
    assert window.focusWidget() is panel.server.url


def test_the_panel_leads_to_all_models(qtbot: QtBot, window: MainWindow) -> None:
    window.page.model.all.click()
    assert window.models is not None
    assert window.models.isVisible()
