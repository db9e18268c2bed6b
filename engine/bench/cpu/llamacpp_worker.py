"""Run by the Python of an environment with llama-cpp-python, built for this machine, and gguf, as `llamacpp_worker.py
MODEL DTYPE ROWS CONTEXT`. It answers each line of JSON with how long its prompts took; it knows nothing of us.

llama.cpp has the step and leaves batching to its caller: here all prompts in batches, then a step for all answers that
are not over yet, greedily.
"""

import ctypes
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

BATCH = 2048  # tokens of a call
F32, BF16 = 0, 30  # of ggml's types
PARTS = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}  # fmt: skip


def tensors(folder: Path) -> dict[str, np.ndarray[Any, Any]]:
    """Of a safetensors file; bfloat16 as the bits of it."""
    data = (folder / "model.safetensors").read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    kinds = {"F32": np.float32, "BF16": np.uint16}
    found = {}
    for name, told in header.items():
        if name != "__metadata__":
            begin, end = (8 + length + at for at in told["data_offsets"])
            found[name] = np.frombuffer(data[begin:end], kinds[told["dtype"]]).reshape(told["shape"])
    return found


def convert(folder: Path, half: bool) -> str:
    """A Llama as transformers saves it, as a GGUF file without a vocabulary."""
    import gguf

    config = json.loads((folder / "config.json").read_text())
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    writer = gguf.GGUFWriter(str(folder / "model.gguf"), "llama")
    writer.add_vocab_size(config["vocab_size"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    writer.add_tokenizer_model("none")
    of_half = gguf.GGMLQuantizationType.BF16

    def add(name: str, x: np.ndarray[Any, Any]) -> None:
        if half and x.ndim == 1:  # norms are float32 there
            writer.add_tensor(name, (x.astype(np.uint32) << 16).view(np.float32))
        elif half:
            writer.add_tensor(name, np.ascontiguousarray(x).view(np.uint8), raw_dtype=of_half)
        else:
            writer.add_tensor(name, np.ascontiguousarray(x))

    held = tensors(folder)
    add("token_embd.weight", held["model.embed_tokens.weight"])
    add("output_norm.weight", held["model.norm.weight"])
    add("output.weight", held.get("lm_head.weight", held["model.embed_tokens.weight"]))
    for layer in range(config["num_hidden_layers"]):
        for theirs, its in PARTS.items():
            x = held[f"model.layers.{layer}.{theirs}.weight"]
            if its in ("attn_q", "attn_k"):  # its rotation turns neighbours
                count = heads if its == "attn_q" else kv_heads
                x = x.reshape(count, 2, -1, x.shape[-1]).swapaxes(1, 2).reshape(x.shape)
            add(f"blk.{layer}.{its}.weight", x)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return str(folder / "model.gguf")


class LlamaCpp:
    """A model and a context for so many sequences of so many tokens."""

    def __init__(self, path: str, half: bool, rows: int, context: int) -> None:
        import llama_cpp  # type: ignore[import-not-found]

        self.api: Any = llama_cpp
        silent = llama_cpp.llama_log_callback(lambda level, text, data: None)
        llama_cpp.llama_log_set(silent, ctypes.c_void_p())
        self._silent = silent
        llama_cpp.llama_backend_init()
        self.model = llama_cpp.llama_model_load_from_file(path.encode(), llama_cpp.llama_model_default_params())
        given = llama_cpp.llama_context_default_params()
        given.n_ctx, given.n_seq_max, given.n_batch = rows * context, rows, BATCH
        given.kv_unified = True
        given.n_threads = given.n_threads_batch = os.cpu_count() or 1
        given.type_k = given.type_v = BF16 if half else F32
        self.context = llama_cpp.llama_init_from_model(self.model, given)
        assert self.context, "llama.cpp made no context"
        self.vocabulary = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self.model))
        self.batch = llama_cpp.llama_batch_init(BATCH, 0, 1)

    def run(self, tokens: list[tuple[int, int, int, bool]]) -> list[int]:
        """Computes tokens (id, position, sequence, whether its successor is wanted); the likeliest successors."""
        batch, drawn = self.batch, []
        for begin in range(0, len(tokens), BATCH):
            some = tokens[begin : begin + BATCH]
            batch.n_tokens = len(some)
            for i, (token, position, sequence, wanted) in enumerate(some):
                batch.token[i], batch.pos[i], batch.logits[i] = token, position, wanted
                batch.n_seq_id[i], batch.seq_id[i][0] = 1, sequence
            assert self.api.llama_decode(self.context, batch) == 0, "llama_decode failed"
            for i, (*_, wanted) in enumerate(some):
                if wanted:
                    logits = self.api.llama_get_logits_ith(self.context, i)
                    drawn.append(int(np.ctypeslib.as_array(logits, (self.vocabulary,)).argmax()))
        return drawn

    def answer(self, prompts: list[list[int]], new_tokens: list[int]) -> list[list[int]]:
        self.api.llama_memory_clear(self.api.llama_get_memory(self.context), False)
        last = [len(prompt) - 1 for prompt in prompts]
        whole = [(t, at, i, at == last[i]) for i, prompt in enumerate(prompts) for at, t in enumerate(prompt)]
        said = [[token] for token in self.run(whole)]
        while live := [i for i, tokens in enumerate(said) if len(tokens) < new_tokens[i]]:
            step = [(said[i][-1], last[i] + len(said[i]), i, True) for i in live]
            for i, token in zip(live, self.run(step), strict=True):
                said[i].append(token)
        return said


def main() -> None:
    folder, half, rows, context = Path(sys.argv[1]), sys.argv[2] == "bfloat16", int(sys.argv[3]), int(sys.argv[4])
    engine = LlamaCpp(convert(folder, half), half, rows, context)
    threads = os.cpu_count() or 1
    version = sys.modules["llama_cpp"].__version__
    settings = f"llama-cpp-python {version}, {sys.argv[2]}, {threads} thread{'s' if threads > 1 else ''}"
    print(json.dumps({"settings": settings}), flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        begun = time.perf_counter()
        said = engine.answer(order["prompts"], order["new_tokens"])
        seconds = time.perf_counter() - begun
        print(json.dumps({"seconds": seconds, "tokens": sum(map(len, said))}), flush=True)


if __name__ == "__main__":
    main()
