"""Whether a model on the hub fits: told from its config and headers, or from the cache where the hub is silent."""

import pytest

from app.__main__ import main
from engine import InvalidInput, ModelSpec
from engine.checkpoints import download, inspect_model
from engine.memory import DeviceMemory, fits, model_info
from tests.engine.checkpoints.hub.conftest import FIRST
from tests.engine.checkpoints.hub.small_hub import SmallHub

ROOM = DeviceMemory("cpu", 8 << 30, 16 << 30)


@pytest.mark.parametrize("id", ["batch/stories", "batch/shards"])
def test_a_hub_models_bills_are_those_of_the_folder_that_it_becomes(hub: SmallHub, id: str) -> None:
    assert fits(model_info(ModelSpec(id)), ROOM) == fits(inspect_model("demo-draft"), ROOM)
    assert not hub.sent("tokenizer.json")


def test_the_command_takes_a_hub_id_and_a_revision(hub: SmallHub, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", "batch/stories", "--revision", "v1", "--device", "cpu"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("batch/stories\n")
    assert "LlamaForCausalLM, served" in out
    assert main(["fit", "batch/none", "--device", "cpu"]) == 2


def test_where_the_hub_is_silent_a_cached_model_is_told_of(hub: SmallHub, monkeypatch: pytest.MonkeyPatch) -> None:
    download("batch/stories", "v1")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    for revision in (None, FIRST):
        info = model_info(ModelSpec("batch/stories", revision=revision))
        assert info.parameters == inspect_model("demo-draft").parameters
        assert info.name == "batch/stories"
    with pytest.raises(InvalidInput, match="hub"):
        model_info(ModelSpec("batch/shards"))
