"""What children do in tests of how they are started."""

import json
import os
import socket
import sys
from typing import Any

from engine.jobs.job import Report


def answer(descriptor: int) -> None:
    """Evaluates lines, until there are no more."""
    with socket.socket(fileno=descriptor) as link, link.makefile() as lines:
        for line in lines:
            link.sendall(json.dumps(eval(line, {"os": os, "sys": sys})).encode() + b"\n")


def first_token(arguments: Any, report: Report) -> list[str]:
    """The modules that a load and a token import."""
    before = set(sys.modules)
    from engine import Engine, ModelSpec, SamplingParams

    with Engine(ModelSpec("demo-draft"), threads=1) as engine:
        engine.submit("Once", SamplingParams(max_tokens=1)).result()
    return sorted(set(sys.modules) - before)


def compiler(quantizations: list[str], report: Report) -> list[Any]:
    """Whether torch's compiler was there after a token of the model in each quantization, or after models were made
    whose positions turn in other ways; and what a function gives that has gone through it."""
    from engine import Engine, ModelSpec, SamplingParams

    for quantization in quantizations:
        with Engine(ModelSpec("demo-draft", quantization), threads=1) as engine:
            engine.submit("Once", SamplingParams(max_tokens=1)).result()
    had = ["torch._dynamo" in sys.modules]
    import torch
    from transformers import GptOssConfig, GptOssForCausalLM, LlamaConfig, LlamaForCausalLM

    turned = {"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    turned["original_max_position_embeddings"] = 8192
    with torch.device("meta"):  # as a load makes them
        GptOssForCausalLM(GptOssConfig(num_hidden_layers=1))
        had.append("torch._dynamo" in sys.modules)
        LlamaForCausalLM(LlamaConfig(num_hidden_layers=1, rope_parameters=turned))
        had.append("torch._dynamo" in sys.modules)
    return [*had, torch.compile(lambda x: x + 1, backend="eager")(torch.tensor(2.0)).item()]
