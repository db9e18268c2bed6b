"""What a person's mistake gets: a message that names the thing and what to do, and running requests that go on."""

import json
import re
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import engine.core.intake.prompts
import resources
from engine import Engine, EngineConfig, EngineProcess, InvalidInput, ModelSpec, SamplingParams
from engine.models.loading import load
from engine.trace import FinishReason
from engine.workloads import read_prompts
from tests.engine.conftest import SMALL
from tests.engine.tiny_models import VOCABULARY, TinyModel, change_config, save_tiny_model

FOX: list[Any] = [{"role": "user", "content": "Tell me a story about a fox and a kite."}]
GREEDY = SamplingParams(max_tokens=8, temperature=0)


def refusal(source: Path | str, **spec: Any) -> str:
    """The message that loading gives."""
    with pytest.raises(InvalidInput) as caught:
        load(ModelSpec(str(source), device="cpu", **spec))
    message = str(caught.value)
    assert "\n" not in message
    assert "Traceback" not in message
    return message


# Models.


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    assert refusal(tmp_path / "nowhere") == f"no folder {tmp_path / 'nowhere'}: check the path of the model"


def test_a_file_in_place_of_a_folder_is_named(demo_copy: Path) -> None:
    message = refusal(demo_copy / "model.safetensors")
    assert message.endswith("model.safetensors is a file: give the folder that holds the model's config.json")


def test_a_word_that_is_neither_a_folder_nor_a_hub_id_is_named() -> None:
    assert re.match("no model 'demmo': give demo, the path of a folder, or a hub id", refusal("demmo"))


def test_a_hub_id_may_end_with_its_revision() -> None:
    assert ModelSpec("owner/name@refs/pr/1") == ModelSpec("owner/name", revision="refs/pr/1")
    with pytest.raises(InvalidInput, match="revision='v2': owner/name@v1 names another"):
        ModelSpec("owner/name@v1", revision="v2")
    assert ModelSpec("/models/llama@home").source == "/models/llama@home"


@pytest.mark.parametrize("source", ["demo", str(resources.path("models/stories-draft"))])
def test_a_revision_of_what_is_no_hub_model_is_refused(source: str) -> None:
    assert re.match("revision='v1': .* has no revisions; leave it out", refusal(source, revision="v1"))


def test_a_folder_that_is_no_model_is_told_what_it_lacks(tmp_path: Path) -> None:
    assert refusal(tmp_path) == f"{tmp_path} is no model: it has no config.json; choose the folder that holds one"


@pytest.mark.parametrize("file", ["model.safetensors", "tokenizer.json"])
def test_a_folder_without_weights_or_tokenizer_is_told_which(file: str, demo_copy: Path) -> None:
    (demo_copy / file).unlink()
    message = refusal(demo_copy)
    assert str(demo_copy) in message
    assert ("safetensors" if file.startswith("model") else "tokenizer") in message
    assert "incomplete" in message or "copy the model's tokenizer files" in message


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_weight_that_is_no_number_is_named(value: float, demo_copy: Path) -> None:
    path = demo_copy / "model.safetensors"
    weights = load_file(path)
    name = next(name for name in weights if name.endswith("v_proj.weight"))
    weights[name][3, 5] = value
    save_file(weights, path, {"format": "pt"})
    assert refusal(demo_copy).endswith(f"the weight {name} holds NaN or infinity; fetch the model again")


def test_a_row_without_probabilities_ends_with_words_and_the_others_go_on(demo_copy: Path) -> None:
    with Engine(ModelSpec(str(demo_copy)), SMALL) as model:
        with torch.no_grad():
            model.model.module.get_input_embeddings().weight[7] = float("nan")
        broken, fine = model.submit([5, 7], GREEDY), model.submit([5, 6], GREEDY)
        assert broken.result(timeout=20).error.startswith("the model computed NaN or infinity")
        assert fine.result(timeout=20).finish_reason is not FinishReason.ERROR


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"hidden_size": 256}', "\x00\xff"])
def test_a_broken_config_is_named(text: str, demo_copy: Path) -> None:
    (demo_copy / "config.json").write_text(text, encoding="latin-1")
    assert str(demo_copy / "config.json") in refusal(demo_copy)


@pytest.mark.parametrize(
    "change",
    [
        {"model_type": "no_such_type"},
        {"model_type": 7},
        {"hidden_size": "wide"},
        {"hidden_size": 0},
        {"num_attention_heads": 0},
        {"num_attention_heads": 7},
        {"num_hidden_layers": -1},
        {"num_hidden_layers": 12},
        {"hidden_size": 512},
        {"vocab_size": 100},
        {"vocab_size": "many"},
        {"rope_parameters": "none"},
        {"max_position_embeddings": "long"},
    ],
    ids=str,
)
def test_a_config_with_a_wrong_value_is_refused_by_folder(change: dict[str, Any], demo_copy: Path) -> None:
    change_config(demo_copy, **change)
    assert str(demo_copy) in refusal(demo_copy)


def _truncated(data: bytes) -> bytes:
    return data[: len(data) // 2]


def _no_header(data: bytes) -> bytes:
    return b"this is not a safetensors file"


def _huge_header(data: bytes) -> bytes:
    return struct.pack("<Q", 1 << 60) + data[8:]


def _wrong_header(data: bytes) -> bytes:
    header = json.dumps({"model.norm.weight": {"dtype": "F32"}}).encode()
    return struct.pack("<Q", len(header)) + header


def _list_header(data: bytes) -> bytes:
    return struct.pack("<Q", 2) + b"[]"


def _empty(data: bytes) -> bytes:
    return b""


@pytest.mark.parametrize("broken", [_truncated, _no_header, _huge_header, _wrong_header, _list_header, _empty])
def test_broken_safetensors_are_named(broken: Callable[[bytes], bytes], demo_copy: Path) -> None:
    weights = demo_copy / "model.safetensors"
    weights.write_bytes(broken(weights.read_bytes()))
    message = refusal(demo_copy)
    assert str(demo_copy) in message
    assert "fetch the model again" in message


def test_weights_that_lack_a_tensor_are_refused(demo_copy: Path) -> None:
    from safetensors.torch import load_file, save_file

    tensors = load_file(demo_copy / "model.safetensors")
    del tensors["model.layers.2.mlp.up_proj.weight"]
    save_file(tensors, demo_copy / "model.safetensors", metadata={"format": "pt"})
    message = refusal(demo_copy)
    assert "model.layers.2.mlp.up_proj.weight" in message
    assert "fetch the model again" in message


@pytest.mark.parametrize("text", ["", "{}", '{"model": 3}', "not json"])
def test_a_broken_tokenizer_is_refused(text: str, demo_copy: Path) -> None:
    (demo_copy / "tokenizer.json").write_text(text)
    assert re.match(rf"{re.escape(str(demo_copy))}: the tokenizer cannot be read", refusal(demo_copy))


def test_weights_that_are_only_pickled_are_not_opened(demo_copy: Path) -> None:
    (demo_copy / "model.safetensors").rename(demo_copy / "pytorch_model.bin")
    message = refusal(demo_copy)
    assert "pytorch_model.bin" in message
    assert "convert them to safetensors" in message


def test_a_model_that_brings_code_is_not_run_unless_it_is_trusted(demo_copy: Path) -> None:
    witness = demo_copy / "ran"
    (demo_copy / "modeling.py").write_text(f"open({str(witness)!r}, 'w').close()\n")
    change_config(demo_copy, auto_map={"AutoModelForCausalLM": "modeling.Own"}, model_type="own_kind")
    message = refusal(demo_copy)
    assert "auto_map" in message
    assert "trust_remote_code" in message
    assert not witness.exists()


@pytest.mark.parametrize(
    ("kind", "config"),
    [
        ("bloom", {"n_layer": 2, "n_head": 4}),
        ("falcon", {"num_hidden_layers": 2, "num_attention_heads": 4}),
        ("mamba", {"num_hidden_layers": 2}),
        ("bert", {"num_hidden_layers": 2, "num_attention_heads": 4}),
        ("t5", {"num_layers": 2, "num_heads": 4}),
    ],
)
def test_a_model_type_without_the_attention_interface_is_refused_by_name(
    kind: str, config: dict[str, Any], demo_copy: Path
) -> None:
    values = {"model_type": kind, "vocab_size": VOCABULARY, "hidden_size": 64}
    (demo_copy / "config.json").write_text(json.dumps(values | config))
    message = refusal(demo_copy)
    assert f"model type {kind!r}" in message
    assert "choose" in message


def test_bloom_with_its_own_weights_is_refused_as_well(tmp_path: Path) -> None:
    def config() -> Any:
        return transformers.BloomConfig(vocab_size=VOCABULARY, hidden_size=64, n_layer=2, n_head=4)

    save_tiny_model(TinyModel(config), tmp_path)
    assert "does not use transformers' attention interface" in refusal(tmp_path)


@pytest.mark.parametrize("method", ["bitsandbytes", "gptq", "fp8", "compressed-tensors"])
@pytest.mark.parametrize("asked", ["none", "nf4"])
def test_a_checkpoint_quantized_in_another_way_is_refused_by_its_name(method: str, asked: str, demo_copy: Path) -> None:
    change_config(demo_copy, quantization_config={"quant_method": method, "load_in_4bit": True, "bits": 4})
    message = refusal(demo_copy, quantization=asked)
    assert f"is quantized already, as {method!r}, which is not supported" in message
    assert "use the original model" in message


def test_awq_of_a_checkpoint_that_is_not_says_how_to_make_one(demo_copy: Path) -> None:
    message = refusal(demo_copy, quantization="awq")
    assert f"{demo_copy} is not an AWQ checkpoint: make one with `batchscope quantize {demo_copy} --to awq`" in message


@pytest.mark.parametrize("asked", ["int8", "int8-plain", "nf4", "nf4-double", "torchao-int8"])
def test_an_awq_checkpoint_is_not_quantized_again(asked: str, demo_copy: Path) -> None:
    change_config(demo_copy, quantization_config={"quant_method": "awq", "bits": 4, "group_size": 64})
    message = refusal(demo_copy, quantization=asked)
    assert f"is quantized already, as AWQ, and cannot be quantized again as {asked}" in message


@pytest.mark.parametrize(
    ("library", "asked", "remedy"),
    [
        ("bitsandbytes", "nf4", "pip install bitsandbytes accelerate"),
        ("bitsandbytes", "int8", "pip install bitsandbytes accelerate"),
        ("torchao", "torchao-int8", "pip install 'batchscope[torchao]'"),
    ],
)
def test_a_quantization_whose_library_is_not_installed_says_what_to_install(
    library: str, asked: str, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    message = refusal("demo", quantization=asked)
    assert f"quantization={asked!r}: {library} is not installed: {remedy}" in message


def rewrite_weights(folder: Path, change: Callable[[dict[str, torch.Tensor]], None]) -> None:
    from safetensors.torch import load_file, save_file

    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"]}, "missing model.layers.0.self_attn.k_norm"),
        ({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]}, "missing "),
        ({"num_hidden_layers": 7}, "missing model.layers.6.input_layernorm.weight"),
        ({"num_hidden_layers": 5}, "unexpected model.layers.5.input_layernorm.weight"),
        ({"intermediate_size": 512}, "mismatched model.layers.0.mlp.down_proj.weight"),
    ],
)
@pytest.mark.parametrize("asked", ["none", "nf4"])
def test_a_config_that_promises_another_model_than_the_weights_is_refused(
    changes: dict[str, Any], said: str, asked: str, demo_copy: Path
) -> None:
    change_config(demo_copy, **changes)
    message = refusal(demo_copy, quantization=asked)
    kind = changes.get("model_type", "llama")
    assert f"its weights are not those of the model that config.json describes ({kind})" in message
    assert said in message
    assert "fetch the model again, all its files from one place" in message


@pytest.mark.parametrize("asked", ["int8", "int8-plain", "nf4-double", "torchao-int8"])
def test_no_quantization_takes_weights_of_another_shape(asked: str, demo_copy: Path) -> None:
    """transformers itself loads them without a word."""
    change_config(demo_copy, intermediate_size=512)
    assert "mismatched model.layers.0.mlp.down_proj.weight (of 18)" in refusal(demo_copy, quantization=asked)


def test_weights_that_the_model_has_no_place_for_are_refused(demo_copy: Path) -> None:
    def add(tensors: dict[str, torch.Tensor]) -> None:
        tensors["model.layers.0.self_attn.extra.weight"] = torch.zeros(4, 4)

    rewrite_weights(demo_copy, add)
    assert "unexpected model.layers.0.self_attn.extra.weight (of 1)" in refusal(demo_copy)


def test_buffers_that_old_versions_saved_are_passed_over(demo_copy: Path) -> None:
    def add(tensors: dict[str, torch.Tensor]) -> None:
        for i in range(6):
            tensors[f"model.layers.{i}.self_attn.rotary_emb.inv_freq"] = torch.zeros(16)
            tensors[f"model.layers.{i}.attention.masked_bias"] = torch.tensor(-1e9)

    rewrite_weights(demo_copy, add)
    load(ModelSpec(str(demo_copy), device="cpu"))


def test_a_tied_output_layer_may_be_in_the_file_as_well(demo_copy: Path) -> None:
    def add(tensors: dict[str, torch.Tensor]) -> None:
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()

    rewrite_weights(demo_copy, add)
    for asked in ("none", "nf4", "int8", "torchao-int8"):
        load(ModelSpec(str(demo_copy), asked, device="cpu"))


def test_a_hub_id_without_network_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = {
        "HF_ENDPOINT": "http://127.0.0.1:9",
        "HF_HOME": str(tmp_path),
        "HF_HUB_OFFLINE": "0",
        "NO_PROXY": "127.0.0.1",
        "no_proxy": "127.0.0.1",
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    message = refusal("nobody/nothing")
    assert "cannot fetch 'nobody/nothing'" in message
    assert "check the network, or give the path of a local folder" in message


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_named() -> None:
    assert re.match("device='cuda': no CUDA GPU is usable here; use cpu", refusal_on("cuda"))


def refusal_on(device: str) -> str:
    with pytest.raises(InvalidInput) as caught:
        load(ModelSpec("demo", device=device))
    return str(caught.value)


# Values.


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"source": " "}, "source=' ': name a model"),
        ({"quantization": "q4"}, "quantization='q4': must be one of none, int8"),
        ({"dtype": "int8"}, "dtype='int8': must be one of auto, float32"),
        ({"device": "tpu"}, "device='tpu': must be auto, cpu, cuda or cuda:N"),
    ],
)
def test_a_model_value_out_of_range_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(message)):
        ModelSpec(**values)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"mode": ["static"]}, "mode=['static']: must be one of recompute, sequential, static, dynamic"),
        ({"mode": "chaos"}, "mode='chaos': must be one of recompute, sequential, static, dynamic"),
        ({"join_every": 0}, "join_every=0: must be a whole number of steps of at least 1"),
        ({"longest_wait": float("nan")}, "longest_wait=nan: must be between 0 and 3600 seconds"),
        ({"longest_wait": 10**400}, "must be between 0 and 3600 seconds"),
        ({"longest_wait": -1.0}, "longest_wait=-1.0: must be between 0 and 3600 seconds"),
        ({"delivery": "pigeon"}, "delivery='pigeon': must be one of stream, batch"),
        ({"delivery": "batch"}, "delivery='batch': mode 'continuous' has no batch that ends together"),
        ({"max_running": 0}, "max_running=0: must be a whole number of at least 1"),
        ({"token_budget": 8}, "token_budget=8: must be at least max_running (64)"),
        ({"block_size": 12}, "block_size=12: must be a power of two"),
        ({"kv_memory": -5}, "kv_memory=-5: must be a number of bytes"),
        ({"mode": "static", "prefix_caching": True}, "prefix_caching=True: mode 'static' has no blocks to share"),
        ({"speculation": "medusa"}, "speculation='medusa': must be one of"),
        ({"depth": 2}, "depth=2: must be 0, 1 or None"),
        ({"seed": -1}, "seed=-1: must be a whole number"),
    ],
)
def test_an_engine_value_out_of_range_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(message)):
        EngineConfig(**values)


def test_a_pool_too_small_for_one_block_is_refused_at_the_load() -> None:
    with pytest.raises(InvalidInput, match="kv_memory=100: one block of this model takes"):
        Engine(ModelSpec("demo-draft"), EngineConfig(kv_memory=100))


# Prompts, while a request runs.


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ("", "prompt='': it is empty; write something"),
        (" \n", "prompt=' \\n': it is empty; write something"),
        ([], "prompt=[]: it is empty; give at least one token id"),
        ([1, 5000], "prompt: token id 5000 is not in [0, 3072)"),
        ([-1], "prompt: token id -1 is not in [0, 3072)"),
        ([1, "a"], "prompt: token id 'a' is not in [0, 3072)"),
        ([1.5], "prompt: token id 1.5 is not in [0, 3072)"),
        ([5] * 2000, "prompt of 2,000 tokens: demo draft 0.8M has a context of 1,024; shorten it"),
        ([5] * 1024, "prompt of 1,024 tokens: demo draft 0.8M has a context of 1,024; shorten it"),
        ("fox " * 3000, "has a context of 1,024; shorten it"),
        ([{"role": "user", "content": " "}], "prompt: no message of the user says anything"),
        ([{"role": "user"}], "prompt: the message {'role': 'user'} needs a role and a content"),
        ([{"role": "user", "content": 3}], "needs a role and a content, both text"),
        (None, "prompt=None"),
        (7, "prompt=7"),
        ({"role": "user", "content": "a fox"}, "prompt="),
        ([{"role": "user", "content": "a"}, 3], "prompt"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_bad_prompt_is_refused_and_what_runs_goes_on(prompt: Any, message: str, demo: Engine) -> None:
    running = demo.submit(FOX, GREEDY.with_(max_tokens=40, ignore_eos=True))
    with pytest.raises(InvalidInput, match=re.escape(message)):
        demo.submit(prompt, GREEDY)
    completion = running.result(timeout=20)
    assert completion.finish_reason is FinishReason.LENGTH
    assert len(completion.token_ids) == 40
    assert len(demo.trace.requests) == 1, "a refused prompt leaves no trace"


def test_of_several_prompts_none_is_taken_when_one_is_bad(demo: Engine) -> None:
    from engine import Submission

    with pytest.raises(InvalidInput, match="it is empty"):
        demo.submit_many([Submission(FOX, GREEDY), Submission("", GREEDY)])
    assert demo.trace.requests == {}


def test_a_request_that_the_whole_pool_cannot_hold_is_refused_with_the_pools_size(large_demo: Engine) -> None:
    large_demo.begin(EngineConfig(max_running=4, kv_memory=4 * 16 * large_demo.card.kv_token_bytes))
    with pytest.raises(
        InvalidInput, match=r"prompt of 100 tokens.*the whole KV pool holds 64 tokens; lower max_tokens"
    ):
        large_demo.submit([5] * 100, GREEDY)
    with pytest.raises(InvalidInput, match=r"prompt of 30 tokens with max_tokens=500: the whole KV pool holds 64"):
        large_demo.submit([5] * 30, GREEDY.with_(max_tokens=500))
    fits = large_demo.submit([5] * 30, GREEDY.with_(max_tokens=35, ignore_eos=True)).result(timeout=20)
    assert len(fits.token_ids) == 35


def test_a_chat_to_a_model_without_a_template_is_refused(demo_copy: Path) -> None:
    (demo_copy / "chat_template.jinja").unlink()
    with Engine(ModelSpec(str(demo_copy)), SMALL, threads=1) as plain:
        with pytest.raises(InvalidInput, match=r"model has no chat template: send the prompt as plain text"):
            plain.submit(FOX, GREEDY)
        assert plain.submit("Once there was", GREEDY).result(timeout=20).text


def test_a_template_without_an_end_is_given_up(demo_copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loops = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
    (demo_copy / "chat_template.jinja").write_text(loops)
    monkeypatch.setattr(engine.core.intake.prompts, "PATIENCE", 0.2)
    with Engine(ModelSpec(str(demo_copy)), SMALL) as model:
        with pytest.raises(InvalidInput, match="the chat template of model takes longer than 0 s for it"):
            model.submit(FOX, GREEDY)
        assert model.submit("Once", GREEDY).result(timeout=20).error == ""


def test_a_panic_of_the_tokenizer_is_told_to_whoever_asked(demo_copy: Path) -> None:
    path = demo_copy / "tokenizer.json"
    words = json.loads(path.read_text())
    split = {"type": "Split", "pattern": {"Regex": "(a|a|aa)+$"}, "behavior": "Isolated", "invert": False}
    words["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [split, words["pre_tokenizer"]]}
    path.write_text(json.dumps(words))
    with EngineProcess(ModelSpec(str(demo_copy)), SMALL) as process:
        with pytest.raises(InvalidInput, match="the tokenizer of model fails on it: Onig: Regex search error"):
            process.submit("a" * 60 + "b", GREEDY)
        assert process.submit("Once", GREEDY).result(timeout=20).error == ""


def test_a_template_that_refuses_the_chat_is_quoted(demo_copy: Path) -> None:
    (demo_copy / "chat_template.jinja").write_text("{{ raise_exception('roles must alternate') }}")
    with (
        Engine(ModelSpec(str(demo_copy)), SMALL, threads=1) as strict,
        pytest.raises(InvalidInput, match="the chat template of model refuses it: roles must alternate"),
    ):
        strict.submit(FOX, GREEDY)


def test_a_prompt_with_tokens_that_the_model_does_not_know_is_refused(demo_copy: Path) -> None:
    """A tokenizer may have more words than the model has rows: looked up, they would break the step of everybody."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(demo_copy)
    tokenizer.add_tokens(["<brand-new>"])
    tokenizer.save_pretrained(demo_copy)
    with (
        Engine(ModelSpec(str(demo_copy)), SMALL, threads=1) as small,
        pytest.raises(InvalidInput, match=r"token id 3072 is not in \[0, 3072\)"),
    ):
        small.submit("a <brand-new> fox", GREEDY)


# Files of prompts.


def test_a_prompt_file_with_broken_utf8_names_the_line_and_the_byte(tmp_path: Path) -> None:
    path = tmp_path / "prompts.txt"
    path.write_bytes("a fox\nein Bär\n".encode() + "ein Bär\n".encode("latin-1"))
    with pytest.raises(InvalidInput, match=re.escape(f"{path}, line 3, byte 6: not UTF-8; save the file as UTF-8")):
        read_prompts(path)


def test_a_prompt_file_that_is_missing_or_empty_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=re.escape(f"cannot read the prompt file {tmp_path / 'none.txt'}")):
        read_prompts(tmp_path / "none.txt")
    with pytest.raises(InvalidInput, match="cannot read the prompt file"):
        read_prompts(tmp_path)
    (tmp_path / "empty.txt").write_text("\n  \n")
    with pytest.raises(InvalidInput, match=r"empty.txt has no prompts; write one a line"):
        read_prompts(tmp_path / "empty.txt")


def test_a_prompt_file_is_read_line_by_line(tmp_path: Path) -> None:
    path = tmp_path / "prompts.txt"
    path.write_bytes(b"\xef\xbb\xbfa fox\r\n\r\n a kite \n" + "日本".encode())
    assert [a.prompt for a in read_prompts(path)] == ["a fox", " a kite ", "日本"]


def test_a_prompt_of_megabytes_is_refused_without_the_memory_for_its_tokens(demo: Engine) -> None:
    before = getrusage(RUSAGE_SELF).ru_maxrss
    for prompt in ("fox and kite " * 1_600_000, [{"role": "user", "content": "fox and kite " * 1_600_000}]):
        with pytest.raises(InvalidInput, match=r"prompt of over 1,024 tokens: demo draft 0\.8M has a context of 1,024"):
            demo.submit(prompt)
    with pytest.raises(InvalidInput) as caught:
        demo.submit([{"role": "user", "text": "x" * 1_000_000}])
    assert len(str(caught.value)) < 500
    assert getrusage(RUSAGE_SELF).ru_maxrss - before < 500 << 10


def test_a_request_that_is_no_number_is_refused_and_the_engine_goes_on(large_demo: Engine) -> None:
    with pytest.raises(InvalidInput, match=r"request=\[1\]: must be a whole number"):
        large_demo.cancel([[1]])  # type: ignore[list-item]
    assert large_demo.submit(FOX, GREEDY).result(timeout=20).finish_reason is not FinishReason.ERROR
