"""A llama.cpp server over the demo model: `python llamacpp.py GGUF THREADS SLOTS CONTEXT PORT`, a process that knows
nothing of us. The context is that of each slot."""

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

PARTS = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}  # fmt: skip
CONTROL, NORMAL = 3, 1


def convert(to: Path) -> Path:
    """The demo model as a GGUF file in float32, with its tokenizer."""
    import gguf
    import torch
    from safetensors.torch import load_file

    import resources

    folder = Path(resources.path("models/stories-5m"))
    config: dict[str, Any] = json.loads((folder / "config.json").read_text())
    told = json.loads((folder / "tokenizer.json").read_text())
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    writer = gguf.GGUFWriter(str(to), "llama")
    writer.add_vocab_size(config["vocab_size"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    vocabulary = sorted(told["model"]["vocab"].items(), key=lambda item: item[1])
    special = {each["id"] for each in told["added_tokens"]}
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([text for text, _ in vocabulary])
    writer.add_token_types([CONTROL if i in special else NORMAL for _, i in vocabulary])
    writer.add_token_merges([" ".join(pair) for pair in told["model"]["merges"]])
    writer.add_bos_token_id(config["bos_token_id"])
    writer.add_eos_token_id(config["eos_token_id"])
    writer.add_add_bos_token(True)
    writer.add_chat_template((folder / "chat_template.jinja").read_text())
    tensors = {k: v.to(torch.float32).numpy() for k, v in load_file(str(folder / "model.safetensors")).items()}
    writer.add_tensor("token_embd.weight", tensors["model.embed_tokens.weight"])
    writer.add_tensor("output_norm.weight", tensors["model.norm.weight"])
    for i in range(config["num_hidden_layers"]):
        for theirs, name in PARTS.items():
            values = tensors[f"model.layers.{i}.{theirs}.weight"]
            if name in ("attn_q", "attn_k"):
                values = _turned(values, heads if name == "attn_q" else kv_heads)
            writer.add_tensor(f"blk.{i}.{name}.weight", np.ascontiguousarray(values))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return to


def _turned(values: np.ndarray[Any, Any], heads: int) -> np.ndarray[Any, Any]:
    """The halves of a rotary head woven into pairs, as llama.cpp's Llama wants them."""
    rows, width = values.shape
    return values.reshape(heads, 2, rows // heads // 2, width).swapaxes(1, 2).reshape(rows, width)


def main(model: str, threads: int, slots: int, context: int, port: int) -> None:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = model
    params.model_alias = {"stories"}
    params.hostnames, params.port = ["127.0.0.1"], port
    params.n_ctx, params.n_parallel, params.warmup = slots * context, slots, False
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.n_threads_http = slots + 2  # one a stream: it gives each a thread of its own
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    while True:
        time.sleep(1)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
