"""The GPU's path through the engine, on Triton's interpreter: same tokens as the CPU's."""

import os
import subprocess
import sys

SCRIPT = """
import sys
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM
import torch
import resources
from engine import Engine, EngineConfig, SamplingParams, Submission
from engine.models.loading import wrap

torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=3072, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, head_dim=32, max_position_embeddings=128, initializer_range=0.3, attn_implementation="sdpa",
)
tokenizer = AutoTokenizer.from_pretrained(resources.path("models/stories-5m"))
params = SamplingParams(max_tokens=8, temperature=0, ignore_eos=True)
prompts = [[7 * i + j for j in range(n)] for i, n in enumerate((3, 21, 9))]
for depth in (0, 1):
    tiny = wrap(LlamaForCausalLM(config).eval(), tokenizer, "tiny")
    with Engine(tiny, EngineConfig(depth=depth, kv_memory=1 << 18)) as engine:
        for stream in engine.submit_many([Submission(p, params) for p in prompts]):
            completion = stream.result(100)
            assert completion.finish_reason == "length", completion
            print(*completion.token_ids)
    torch.manual_seed(0)
"""


def tokens(interpreted: bool) -> str:
    environment = {**os.environ, "TRITON_INTERPRET": "1" if interpreted else "0", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, timeout=110, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_the_triton_path_gives_the_tokens_of_the_cpu_path_at_both_depths() -> None:
    expected = tokens(interpreted=False)
    assert len(set(expected.split())) >= 10
    assert tokens(interpreted=True) == expected
