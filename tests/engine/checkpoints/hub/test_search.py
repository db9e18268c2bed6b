"""Search and facts, with the real client against a hub on loopback."""

import pytest

import resources
from engine.checkpoints.hub import hub_info, hub_model, search_hub
from engine.checkpoints.inspect import inspect_folder, inspect_model
from engine.config.specs import InvalidInput
from tests.engine.checkpoints.hub.conftest import FIRST, SECOND
from tests.engine.checkpoints.hub.small_hub import TOKEN, SmallHub


def test_a_search_finds_models_by_name_the_most_downloaded_first(hub: SmallHub) -> None:
    found = search_hub(" stories ")
    assert [m.id for m in found] == [
        "batch/stories-5m",
        "batch/stories",
        "batch/gated-stories",
        "batch/pickled-stories",
    ]
    first, third = found[0], found[2]
    assert (first.downloads, first.likes, first.licence, first.gated) == (80_000, 7, "apache-2.0", "")
    assert first.revision == FIRST
    assert first.updated == 1767323045.0
    assert third.gated == "manual"
    query = next(r.query for r in hub.requests if r.path == "/api/models")
    assert query["pipeline_tag"] == ["text-generation"]
    assert query["filter"] == ["safetensors"]
    assert [m.id for m in search_hub("stories", limit=1)] == ["batch/stories-5m"]


def test_a_model_tells_its_commit_and_the_files_that_a_load_needs(hub: SmallHub) -> None:
    model = hub_model("batch/stories")
    assert model.revision == SECOND
    sizes = dict(model.files)
    assert sorted(sizes) == [
        "README.md", "chat_template.jinja", "config.json", "generation_config.json", "model.safetensors",
        "tokenizer.json", "tokenizer_config.json",
    ]  # fmt: skip
    weights = resources.path("models/stories-draft") / "model.safetensors"
    assert sizes["model.safetensors"] == weights.stat().st_size
    assert model.size == sum(sizes.values())
    assert model.problem == ""
    assert hub_model("batch/stories", "v1").revision == FIRST


def test_shards_are_taken_and_the_same_weights_in_another_format_are_not(hub: SmallHub) -> None:
    names = [name for name, _ in hub_model("batch/shards").files if name.endswith(".safetensors")]
    assert names == ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]


@pytest.mark.parametrize(
    ("id", "words"),
    [
        ("batch/pickled-stories", "only there as pickle"),
        ("batch/adapter", "an adapter, no model of its own"),
        ("batch/other", "GGUF, another program's format"),
    ],
)
def test_a_model_that_cannot_be_loaded_says_why(hub: SmallHub, id: str, words: str) -> None:
    assert words in hub_model(id).problem
    with pytest.raises(InvalidInput, match=words):
        hub_info(id)


@pytest.mark.parametrize("id", ["batch/stories", "batch/shards"])
def test_what_a_hub_model_is_comes_from_config_and_headers_alone(hub: SmallHub, id: str) -> None:
    told = hub_info(id)
    local = inspect_model("demo-draft")
    for name in ("architecture", "parameters", "weight_bytes", "layers", "kv_heads", "context", "chat", "tensors"):
        assert getattr(told, name) == getattr(local, name), name
    assert told.name == id
    assert told.folder is None
    assert told.licence == "apache-2.0"
    assert inspect_folder(resources.path("models/stories-draft"), id).kv_token_bytes("float32") == told.kv_token_bytes(
        "float32"
    )
    ranged = [r for r in hub.requests if r.path.endswith(".safetensors")]
    assert ranged
    assert all(r.range for r in ranged)
    assert sum(r.sent for r in ranged) <= 100_001 * len(ranged)


def test_a_gated_models_facts_are_told_to_anyone_and_its_files_to_those_let_in(
    hub: SmallHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert hub_model("batch/gated-stories").gated == "manual"
    with pytest.raises(InvalidInput, match=r"gated: accept its licence on .*/batch/gated-stories, then log in"):
        hub_info("batch/gated-stories")
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert hub_info("batch/gated-stories").chat


@pytest.mark.parametrize(
    ("id", "revision", "words"),
    [
        ("batch/nothing", None, "the hub has no model 'batch/nothing', or it is private: check its name; for a pri"),
        ("batch/secret-stories", None, "or it is private: check its name; for a private one log in with `hf auth log"),
        ("batch/stories", "v9", "batch/stories has no revision 'v9': give a branch, a tag or a commit"),
        ("a/b/c", None, "no model 'a/b/c': a hub id is such as owner/name"),
    ],
)
def test_what_is_not_on_the_hub_is_named(hub: SmallHub, id: str, revision: str | None, words: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        hub_model(id, revision)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("status", "headers", "words"),
    [
        (429, {"Retry-After": "40"}, r"takes no more requests from here for now \(429\): try again in 40 seconds"),
        (503, {}, r"trouble of its own \(503\): try again in some minutes"),
        (403, {}, r"no right to read this \(403\)"),
    ],
)
def test_a_hub_that_refuses_is_told_in_words(hub: SmallHub, status: int, headers: dict[str, str], words: str) -> None:
    hub.errors["/api/models"] = [(status, headers)]
    with pytest.raises(InvalidInput, match=words):
        search_hub("stories")


def test_a_wrong_token_is_said_to_be_wrong(hub: SmallHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    with pytest.raises(InvalidInput, match=r"the hub does not accept your token \(401\): log in with `hf auth login`"):
        hub_model("batch/stories")


def test_without_a_network_and_offline_the_hub_says_so(hub: SmallHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(InvalidInput, match=r"the hub cannot be reached at http://127.0.0.1:9 .* check the network"):
        search_hub("stories")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(InvalidInput, match="HF_HUB_OFFLINE is set, so the hub is not asked"):
        search_hub("stories")


def test_something_else_than_a_hub_is_said_to_be_none(hub: SmallHub) -> None:
    hub.errors["/api/models"] = [(200, {"Content-Type": "text/html"})]
    with pytest.raises(InvalidInput, match=r"what answers at http://127.* is no hub: check HF_ENDPOINT, and whether"):
        search_hub("stories")
