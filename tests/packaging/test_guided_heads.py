"""Heads that are shown where to look: what is a copy of what, and that their loss reaches the weights."""

import sys
from pathlib import Path
from random import Random

import torch
from transformers import LlamaConfig, LlamaForCausalLM

sys.path.insert(0, str(Path(__file__).parents[2] / "packaging"))
import exercises
from guided_heads import COPYING, NAME, GuidedHeads, copied


def test_a_story_told_again_is_a_copy_letter_by_letter() -> None:
    found = copied("The fox ran.", "Tell it again.", "The fox ran.")
    assert found == {i: (False, i) for i in range(12) if i not in (3, 7)}


def test_what_an_exchanged_story_says_stands_in_the_story_or_in_the_question() -> None:
    rng = Random(3)
    for _ in range(50):
        _, told, wish, changed = (message["content"] for message in exercises.exchanged(rng))
        found = copied(told, wish, changed)
        assert len(found) > 0.7 * len(changed.replace(" ", ""))
        for letter, (asked, place) in found.items():
            assert (wish if asked else told)[place].lower() == changed[letter].lower()


def test_the_heads_loss_knows_where_they_look_and_reaches_the_weights() -> None:
    torch.manual_seed(0)
    guided = GuidedHeads()
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=256,
        num_hidden_layers=6,
        intermediate_size=64,
        num_attention_heads=8,
        num_key_value_heads=4,
        attn_implementation=NAME,
    )
    model = LlamaForCausalLM(config)
    model.model.norm.register_forward_pre_hook(guided.hear)
    ids = torch.randint(0, 64, (2, 16)).repeat(1, 2)
    sources = (torch.arange(32) - 15).clamp(min=-1).expand(2, 32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    losses = []
    for _ in range(30):
        model(input_ids=ids, use_cache=False)
        loss = guided.loss(model, ids, sources)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]
    guided.on = False
    plain = model(input_ids=ids, use_cache=False).logits
    assert not guided.looked
    assert not guided.said
    model.set_attn_implementation("sdpa")
    assert torch.equal(plain, model(input_ids=ids, use_cache=False).logits)
    assert {layer for layer, _ in COPYING} < set(range(config.num_hidden_layers))
