"""What is measured: a random Llama or mixture of fixed seed, and prompts of random tokens that each want a fixed number
more."""

from __future__ import annotations

import random
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, Qwen3MoeConfig, Qwen3MoeForCausalLM

from engine.config.sampling_params import SamplingParams
from engine.workloads.workload import Arrival, Workload


@dataclass(frozen=True, slots=True)
class Shape:
    """A decoder's geometry. The default is a Llama of 33.6 M parameters."""

    hidden: int = 512
    layers: int = 8
    heads: int = 8
    kv_heads: int = 4
    intermediate: int = 1536
    vocabulary: int = 8192
    context: int = 1024
    head_dim: int | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """By the names that transformers' configs have for them."""
        named = {
            "hidden_size": self.hidden,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "intermediate_size": self.intermediate,
            "vocab_size": self.vocabulary,
            "max_position_embeddings": self.context,
        }
        return named if self.head_dim is None else named | {"head_dim": self.head_dim}


@dataclass(frozen=True, slots=True)
class Lengths:
    """Tokens of each prompt and new tokens of each, drawn uniformly from [low, high], both ends included."""

    low: int = 16
    high: int = 128


@dataclass(frozen=True, slots=True)
class Case:
    """Prompts as token ids, and how many tokens each gets. No prompt ends early: end tokens are ignored."""

    prompts: tuple[tuple[int, ...], ...]
    new_tokens: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.prompts)

    @property
    def output_tokens(self) -> int:
        return sum(self.new_tokens)

    def first(self, count: int) -> Case:
        return Case(self.prompts[:count], self.new_tokens[:count])

    def workload(self) -> Workload:
        params = SamplingParams(temperature=0, ignore_eos=True)
        return Workload(
            f"{len(self)} random prompts",
            tuple(Arrival(0.0, list(p), params.with_(max_tokens=n)) for p, n in zip(self.prompts, self.new_tokens)),
        )


def make_case(count: int, shape: Shape, lengths: Lengths, seed: int = 0) -> Case:
    """`count` prompts; the same seed gives the same ones, and a shorter case is the beginning of a longer one."""
    rng = random.Random(seed)
    drawn = [(rng.randint(lengths.low, lengths.high), rng.randint(lengths.low, lengths.high)) for _ in range(count)]
    words = random.Random(seed + 1)
    prompts = tuple(tuple(words.randrange(3, shape.vocabulary) for _ in range(length)) for length, _ in drawn)
    return Case(prompts, tuple(new for _, new in drawn))


def random_llama(shape: Shape, seed: int = 0) -> LlamaForCausalLM:
    """A float32 model in eval mode with weights from the seed. It has no end token."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        **shape.settings,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=0,
        attn_implementation="sdpa",
    )
    return LlamaForCausalLM(config).eval().requires_grad_(False)


@dataclass(frozen=True, slots=True)
class Experts:
    """Those of a layer: how many, how many of them have each token, and how wide each is."""

    count: int
    each: int
    columns: int


def random_mixture(shape: Shape, experts: Experts, seed: int = 0) -> Qwen3MoeForCausalLM:
    """A model in eval mode whose MLPs are experts, of torch's default dtype and device, with weights from the seed. It
    has no end token."""
    torch.manual_seed(seed)
    config = Qwen3MoeConfig(
        **shape.settings,
        num_experts=experts.count,
        num_experts_per_tok=experts.each,
        moe_intermediate_size=experts.columns,
        norm_topk_prob=True,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=0,
    )
    return Qwen3MoeForCausalLM(config).eval().requires_grad_(False)


def twin(module: LlamaForCausalLM) -> LlamaForCausalLM:
    """Another module over the same weights, with attention of its own choice."""
    config = deepcopy(module.config)  # it names the attention
    with torch.device("meta"):
        other = LlamaForCausalLM(config)
    other.load_state_dict(module.state_dict(), assign=True)
    other.model.rotary_emb = type(module.model.rotary_emb)(config)
    other.set_attn_implementation("sdpa")
    return other.eval().requires_grad_(False)


def plain_tokenizer(vocabulary: int) -> Any:
    """A tokenizer in which token i is the word `wi`: detokenizing has real work, and no file is read."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    tokenizer = Tokenizer(models.BPE({f"w{i}": i for i in range(vocabulary)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)
