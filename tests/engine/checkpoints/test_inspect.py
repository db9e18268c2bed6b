"""What is known of a model without loading it: told from config and headers, held against the modules themselves."""

import json
import os
import struct
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import CONFIG_MAPPING, AutoConfig, AutoModelForCausalLM, PreTrainedModel

import resources
from engine.checkpoints.info import inspect_parts
from engine.checkpoints.inspect import fault, inspect_folder, inspect_model, licence_of, name_of, resolve
from engine.checkpoints.kv_heads import LATENT
from engine.checkpoints.safetensors import INDEX, read_headers, weight_files
from engine.checkpoints.weight_names import HEADS, OF_LATENTS, sort_weights
from engine.config.specs import InvalidInput, ModelSpec
from engine.quality.awq_recipe import ORIGIN, origin_of
from tests.engine.tiny_models import TINY_MODELS, change_config

SHIPPED_AWQ = resources.path("models/stories-5m-awq")
needs_awq = pytest.mark.skipif(not SHIPPED_AWQ.is_dir(), reason="the AWQ demo checkpoint is not here")


def swapped_linears(module: PreTrainedModel) -> Counter[tuple[int, int]]:
    """(inputs, outputs) of the layers that transformers replaces for bitsandbytes, counted."""
    from transformers import BitsAndBytesConfig
    from transformers.integrations import replace_with_bnb_linear
    from transformers.quantizers.base import HfQuantizer

    kept = [*HEADS, OF_LATENTS] if hasattr(module.config, LATENT) else None
    skipped = HfQuantizer.get_modules_to_not_convert(module, kept, module._keep_in_fp32_modules)
    module = replace_with_bnb_linear(module, skipped, BitsAndBytesConfig(load_in_4bit=True))
    return Counter(
        (part.in_features, part.out_features) for part in module.modules() if type(part).__name__ == "Linear4bit"
    )


def on_meta(config: object) -> PreTrainedModel:
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config)


@pytest.mark.parametrize("name", TINY_MODELS)
def test_linears_parameters_and_shapes_are_those_of_the_module(name: str, tiny_folder: Callable[[str], Path]) -> None:
    folder = tiny_folder(name)
    info = inspect_folder(folder, name)
    config = AutoConfig.from_pretrained(folder)
    module = on_meta(config)
    assert info.parameters == module.num_parameters()
    assert (info.layers, info.heads) == (config.num_hidden_layers, config.num_attention_heads)
    assert (info.hidden, info.vocabulary) == (config.hidden_size, config.vocab_size)
    assert info.context == config.max_position_embeddings
    experts = sum(p.numel() for n, p in module.named_parameters() if ".experts." in n)
    assert info.experts == experts
    assert Counter(info.linears) == swapped_linears(module)
    assert info.others == info.parameters - sum(i * o for i, o in info.linears)


@pytest.mark.parametrize(
    "kind",
    ["afmoe", "ernie4_5_moe", "gemma", "gpt_bigcode", "glm4_moe", "granitemoe", "minimax_m2", "olmoe", "qwen2_moe"],
)
def test_linears_are_told_from_routers_and_experts_in_models_of_full_size(kind: str) -> None:
    config = CONFIG_MAPPING[kind](num_hidden_layers=2)
    module = on_meta(config)
    headers = {name: (tuple(p.shape), "BF16") for name, p in module.named_parameters()}
    info = inspect_parts(json.loads(config.to_json_string()), headers, kind)
    assert info.parameters == module.num_parameters()
    assert Counter(info.linears) == swapped_linears(module)


def test_a_tied_output_layer_is_counted_once_even_if_it_is_stored(demo_copy: Path) -> None:
    tensors = load_file(demo_copy / "model.safetensors")
    before = inspect_folder(demo_copy, "demo")
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
    save_file(tensors, demo_copy / "model.safetensors", metadata={"format": "pt"})
    after = inspect_folder(demo_copy, "demo")
    assert after.tied
    assert after.parameters == before.parameters
    assert after.weight_bytes > before.weight_bytes  # as stored


def test_buffers_of_old_checkpoints_are_no_weights() -> None:
    config = {"model_type": "gpt2", "n_embd": 8, "n_head": 2, "n_layer": 1, "vocab_size": 16}
    headers = {
        "h.0.attn.c_attn.weight": ((8, 24), "F32"),
        "h.0.attn.c_attn.bias": ((24,), "F32"),
        "h.0.attn.bias": ((1, 1, 1024, 1024), "F32"),
        "h.0.attn.masked_bias": ((), "F32"),
    }
    info = inspect_parts(config, headers, "old gpt2")
    assert info.parameters == 8 * 24 + 24
    assert info.linears == ((8, 24),)


def test_latent_attention_and_wider_global_heads_are_in_the_bytes_of_a_token() -> None:
    plain = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 3}
    assert inspect_parts(plain, {}, "plain").kv_token_bytes("bfloat16") == 2 * 3 * 4 * 16 * 2
    latent = plain | {"kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8}
    assert inspect_parts(latent, {}, "latent").kv_token_bytes("float32") == 3 * (32 + 8) * 4
    assert inspect_parts(latent, {}, "latent", kv_heads="all").kv_token_bytes("float32") == 2 * 3 * 4 * 24 * 4
    kinds = ["sliding_attention", "full_attention", "sliding_attention"]
    wide = plain | {"num_key_value_heads": 2, "head_dim": 16, "global_head_dim": 32, "layer_types": kinds}
    assert inspect_parts(wide, {}, "wide").kv_token_bytes("float16") == 2 * (2 * 2 * 16 + 2 * 32) * 2


def test_the_text_model_of_a_nested_config_is_read() -> None:
    text = {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 1, "num_hidden_layers": 5}
    info = inspect_parts({"model_type": "gemma3", "text_config": text}, {}, "nested")
    assert (info.layers, info.kv_heads, info.head_dim) == (5, 1, 16)


@pytest.mark.parametrize("value", [0, -1, "four", 2.5, True])
def test_a_size_that_cannot_be_is_named(value: object) -> None:
    with pytest.raises(InvalidInput, match=r"here: num_attention_heads=.* is not a whole number of at least 1"):
        inspect_parts({"model_type": "llama", "num_attention_heads": value}, {}, "bad", place="here")


# AWQ checkpoints.


def test_packed_weights_count_as_the_eight_they_hold() -> None:
    config = {
        "model_type": "llama",
        "hidden_size": 128,
        "quantization_config": {
            "quant_method": "AWQ",
            "w_bit": 4,
            "q_group_size": 32,
            "modules_to_not_convert": ["mlp"],
        },
    }
    headers = {
        "model.layers.0.self_attn.q_proj.qweight": ((128, 32), "I32"),
        "model.layers.0.self_attn.q_proj.qzeros": ((4, 32), "I32"),
        "model.layers.0.self_attn.q_proj.scales": ((4, 256), "F16"),
        "model.layers.0.self_attn.q_proj.bias": ((256,), "BF16"),
        "model.layers.0.mlp.up_proj.weight": ((64, 128), "BF16"),
        "model.norm.weight": ((128,), "BF16"),
    }  # fmt: skip
    info = inspect_parts(config, headers, "awq")
    assert info.linears == ((128, 256),)
    assert info.others == 256 + 64 * 128 + 128
    assert info.parameters == 128 * 256 + info.others
    assert info.dtype == "bfloat16"  # not the scales'
    assert info.quantized is not None
    assert (info.quantized.method, info.quantized.bits, info.quantized.group) == ("awq", 4, 32)
    assert info.quantized.kept == ("mlp",)


@needs_awq
def test_the_demo_models_awq_checkpoint_has_the_demo_models_parameters() -> None:
    plain, awq = inspect_model("demo"), inspect_model(ModelSpec("demo", quantization="awq"))
    assert awq.parameters == plain.parameters
    assert Counter(awq.linears) == Counter(plain.linears)
    assert awq.quantized is not None
    assert awq.name != plain.name
    assert awq.weight_bytes < plain.weight_bytes / 2


@needs_awq
def test_a_model_without_an_awq_checkpoint_is_refused_with_the_remedy() -> None:
    assert resolve(ModelSpec("demo", quantization="awq")) == SHIPPED_AWQ
    with pytest.raises(InvalidInput, match=r"no AWQ checkpoint of demo-draft ships here: .*`batchscope quantize"):
        resolve(ModelSpec("demo-draft", quantization="awq"))


def test_models_have_names_a_person_knows(tmp_path: Path) -> None:
    assert name_of(ModelSpec("demo"), resources.path("models/stories-5m")) == "demo stories 5M"
    assert name_of(ModelSpec("demo", quantization="awq"), SHIPPED_AWQ) == "demo stories 5M, AWQ"
    assert name_of(ModelSpec(str(tmp_path)), tmp_path) == tmp_path.name
    assert name_of(ModelSpec("owner/name"), tmp_path) == "owner/name"


# Shards.


@pytest.fixture
def shards(demo_copy: Path) -> Path:
    """The demo model in three files and an index."""
    tensors = load_file(demo_copy / "model.safetensors")
    (demo_copy / "model.safetensors").unlink()
    names = [f"model-{i:05}-of-00003.safetensors" for i in (1, 2, 3)]
    placed = {key: names[i % 3] for i, key in enumerate(sorted(tensors))}
    for name in names:
        save_file({k: tensors[k] for k in tensors if placed[k] == name}, demo_copy / name, metadata={"format": "pt"})
    (demo_copy / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": placed}))
    return demo_copy


def test_shards_tell_what_one_file_does(shards: Path) -> None:
    (shards / "training_state.safetensors").write_bytes(b"not of the model")
    assert [path.name[:11] for path in weight_files(shards)] == ["model-00001", "model-00002", "model-00003"]
    whole = inspect_model("demo")
    info = inspect_folder(shards, "shards")
    assert (info.parameters, info.weight_bytes) == (whole.parameters, whole.weight_bytes)
    assert Counter(info.linears) == Counter(whole.linears)


def _without_a_shard(folder: Path) -> None:
    (folder / "model-00002-of-00003.safetensors").unlink()


def _without_the_index(folder: Path) -> None:
    (folder / INDEX).unlink()


def _with_a_broken_index(folder: Path) -> None:
    (folder / INDEX).write_text('{"weight_map": []}')


def _with_an_index_of_more(folder: Path) -> None:
    index = json.loads((folder / INDEX).read_text())
    index["weight_map"]["model.layers.6.mlp.up_proj.weight"] = "model-00001-of-00003.safetensors"
    (folder / INDEX).write_text(json.dumps(index))


def _with_a_short_shard(folder: Path) -> None:
    path = folder / "model-00003-of-00003.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (_without_a_shard, "names 3 files and 1 of them is missing (model-00002-of-00003.safetensors)"),
        (_without_the_index, f"neither model.safetensors nor {INDEX}"),
        (_with_a_broken_index, "does not say which file holds which tensor"),
        (_with_an_index_of_more, "promises model.layers.6.mlp.up_proj.weight, which no file holds"),
        (_with_a_short_shard, "model-00003-of-00003.safetensors is cut short"),
    ],
)
def test_broken_shards_are_refused_by_name(spoil: Callable[[Path], None], words: str, shards: Path) -> None:
    spoil(shards)
    with pytest.raises(InvalidInput) as refused:
        inspect_model(str(shards))
    assert words in str(refused.value)
    assert "fetch the model again" in str(refused.value)


@pytest.mark.parametrize("shape", [[-3, 4], ["x"], [1.5], "ab"])
def test_a_tensor_whose_shape_cannot_be_is_named(shape: object, demo_copy: Path) -> None:
    header = json.dumps({"a.weight": {"shape": shape, "dtype": "F32", "data_offsets": [0, 8]}}).encode()
    (demo_copy / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(8))
    with pytest.raises(InvalidInput, match=r"a\.weight has the shape .*; fetch the model again"):
        inspect_folder(demo_copy, "demo")


@pytest.mark.parametrize("shape", [[], [7], [2, 3, 4]])
def test_packed_weights_that_are_no_matrix_are_named(shape: list[int]) -> None:
    with pytest.raises(InvalidInput, match=r"a\.qweight=\[.*\]: packed weights have two sizes"):
        sort_weights({"a.qweight": tuple(shape)}, bits=4)


def test_a_file_without_tensors_is_no_model(demo_copy: Path) -> None:
    (demo_copy / "model.safetensors").write_bytes(struct.pack("<Q", 2) + b"{}")
    with pytest.raises(InvalidInput, match="holds no weights"):
        inspect_folder(demo_copy, "demo")


@pytest.mark.parametrize("named", [5, "LlamaForCausalLM", [], None])
def test_an_architecture_that_is_no_list_of_names_is_told_by_the_model_type(named: object, demo_copy: Path) -> None:
    change_config(demo_copy, architectures=named)
    assert inspect_folder(demo_copy, "demo").architecture == "llama"


@pytest.mark.parametrize("stored", ["awq", [1], 4])
def test_a_quantization_that_says_nothing_is_refused(stored: object, demo_copy: Path) -> None:
    change_config(demo_copy, quantization_config=stored)
    with pytest.raises(InvalidInput, match=r"quantization_config=.* does not say how"):
        inspect_folder(demo_copy, "demo")


def test_headers_are_read_without_their_metadata(demo_copy: Path) -> None:
    headers = read_headers([demo_copy / "model.safetensors"])
    assert "__metadata__" not in headers
    assert headers["model.norm.weight"] == ((256,), "BF16")


# What a model's files say for people.


@pytest.mark.parametrize(
    ("readme", "licence"),
    [
        ("---\nlanguage: en\nlicense: apache-2.0\n---\n# Model\n", "apache-2.0"),
        ("---\nlicense: other\nlicense_name: tongyi\nlicense_link: LICENSE\n---\n", "tongyi"),
        ("---\nlicense: 'mit'\n---\n", "mit"),
        ("# Model\n---\nlicense: mit\n---\n", ""),
        ("---\ntags: [x]\n---\n", ""),
        ("", ""),
    ],
)
def test_the_licence_is_the_one_that_the_model_card_names(readme: str, licence: str) -> None:
    assert licence_of(readme) == licence


def test_without_a_model_card_the_licence_files_first_words_are_told(demo_copy: Path) -> None:
    (demo_copy / "README.md").unlink()
    assert inspect_folder(demo_copy, "demo").licence == ""
    (demo_copy / "LICENSE").write_text("\n   Apache License\n   Version 2.0\n")
    assert inspect_folder(demo_copy, "demo").licence == "Apache License"
    (demo_copy / "README.md").write_text("---\nlicense: mit\n---\n")
    assert inspect_folder(demo_copy, "demo").licence == "mit"


# Files without an end.


@pytest.mark.timeout(30)
@pytest.mark.parametrize("name", ["README.md", "tokenizer_config.json", "generation_config.json", "LICENSE"])
@pytest.mark.parametrize("endless", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
def test_a_pipe_or_device_among_a_models_files_is_refused_and_not_read(
    demo_copy: Path, name: str, endless: Callable[[Path], None]
) -> None:
    (demo_copy / name).unlink(missing_ok=True)
    endless(demo_copy / name)
    with pytest.raises(InvalidInput, match=rf"has a pipe or a device among its files \({name}\): remove it"):
        inspect_model(str(demo_copy))
    assert inspect_folder(demo_copy, "demo").name == "demo"
    assert f"({name})" in fault(demo_copy)


@pytest.mark.timeout(30)
def test_a_shard_must_be_a_file(demo_copy: Path) -> None:
    (demo_copy / "model.safetensors").unlink()
    os.mkfifo(demo_copy / "a.safetensors")
    (demo_copy / INDEX).write_text(json.dumps({"weight_map": {"model.norm.weight": "a.safetensors"}}))
    with pytest.raises(InvalidInput, match=r"1 of them is missing \(a.safetensors\)"):
        weight_files(demo_copy)


def test_a_text_beyond_all_measure_is_not_read(demo_copy: Path) -> None:
    for name in ("README.md", "config.json"):
        with (demo_copy / name).open("wb") as file:
            file.truncate(20 << 30)
    with pytest.raises(InvalidInput, match=r"config.json cannot be read: .*it has 21,474,836,480 bytes, over"):
        inspect_folder(demo_copy, "demo")


def test_what_is_nested_too_deep_is_refused_wherever_it_stands(demo_copy: Path) -> None:
    deep = b"[" * 100_000
    whole = (demo_copy / "model.safetensors").read_bytes()
    (demo_copy / "model.safetensors").write_bytes(len(deep).to_bytes(8, "little") + deep)
    with pytest.raises(InvalidInput, match=r"is not a safetensors file: it is nested too deep; fetch the model again"):
        inspect_folder(demo_copy, "demo")
    (demo_copy / "model.safetensors").write_bytes(whole)
    (demo_copy / ORIGIN).write_bytes(deep)
    assert origin_of(demo_copy) is None
    (demo_copy / "config.json").replace(demo_copy / "kept.json")
    (demo_copy / "adapter_config.json").write_bytes(deep)
    assert fault(demo_copy).startswith("an adapter, no model of its own")
    (demo_copy / "config.json").write_bytes(deep)
    with pytest.raises(InvalidInput, match=r"config.json cannot be read: it is nested too deep; fetch the model again"):
        inspect_folder(demo_copy, "demo")


def test_of_a_shape_of_any_length_the_message_shows_a_part(demo_copy: Path) -> None:
    entry = {"shape": ["x" * 70_000], "dtype": "F32", "data_offsets": [0, 8]}
    header = json.dumps({"a" * 70_000: entry}).encode()
    (demo_copy / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(8))
    with pytest.raises(InvalidInput, match="aaa has the shape") as caught:
        inspect_folder(demo_copy, "demo")
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("key", ["hidden_size", "quantization_config"])
def test_of_a_value_of_any_length_the_message_shows_a_part(key: str, demo_copy: Path) -> None:
    change_config(demo_copy, **{key: "x" * 70_000})
    with pytest.raises(InvalidInput, match=f"{key}='xxx") as caught:
        inspect_folder(demo_copy, "demo")
    assert len(str(caught.value)) < 500
