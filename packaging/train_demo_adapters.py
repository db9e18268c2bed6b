"""Trains adapters of the demo model (LoRA, Hu et al. 2021), each of which tells its stories in another voice.

    OMP_NUM_THREADS=1 python packaging/train_demo_adapters.py [--out resources/adapters] [--minutes 10] [--only pirate]

The model stays as it is: what is learned is added to its linear layers as the product of two small matrices. Seeds are
fixed. The learning rate follows the share of the time that is spent, so that a slower machine ends with fewer steps and
a finished schedule. Writes what PEFT writes, in bfloat16.
"""

import argparse
import json
import math
import random
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from guided_heads import COPYING
from safetensors.torch import save_file
from torch.nn.functional import cross_entropy, linear
from transformers import AttentionInterface, LlamaForCausalLM, PreTrainedTokenizerFast
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from voices import NOUNS_IN_GERMAN, VOICES, dialogue

MODEL = Path(__file__).parent.parent / "resources" / "models" / "stories-5m"
TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
SCALE = 2  # lora_alpha / r
LONGEST = 156  # tokens of an answer
PEAK = 4e-3
NOTHING = -100  # no label, no place
SHOWN = "shown"


@dataclass(frozen=True)
class Course:
    """How a voice is learned. A translation is not among the words of the question, as most that is told in English is:
    for `cut_share` of the time answers are cut where both nouns have been named, nouns weigh more, and the heads that
    copy are shown which noun of the question is meant."""

    rank: int = 8
    rows: int = 4
    cut: int = LONGEST  # tokens of an answer
    cut_share: float = 0.0
    noun_weight: float = 1.0
    guide: float = 0.0  # what the heads' loss weighs


COURSES = {
    "pirate": Course(rows=8),
    "german": Course(rank=16, cut=50, cut_share=0.3, noun_weight=3.0, guide=0.3),
    "verse": Course(rows=8),
}
NOUN_OF = {form: noun for noun, (nominative, _, other) in NOUNS_IN_GERMAN.items() for form in (nominative, other)}
NAMED = re.compile(rf"(?:\w+ )?\b({'|'.join(NOUN_OF)})\b")  # with its article, which its gender decides


@dataclass
class Document:
    """Columns of the same length: a token, its label, what it weighs, and which token to look at when it is said."""

    ids: list[int]
    labels: list[int]
    weights: list[float]
    places: list[int]

    def add(self, ids: list[int], weights: list[float], places: list[int]) -> None:
        self.ids += ids
        self.labels += [token if weight else NOTHING for token, weight in zip(ids, weights, strict=True)]
        self.weights += weights
        self.places += places

    def ask(self, ids: list[int]) -> None:
        self.add(ids, [0.0] * len(ids), [NOTHING] * len(ids))


class Shown:
    """Shows the heads with which the demo model copies (`guided_heads.py`) where the word is that is said in German."""

    def __init__(self) -> None:
        self.places = torch.empty(0)
        self.losses: list[torch.Tensor] = []
        AttentionInterface.register(SHOWN, self._attend)

    def _attend(self, module: Any, query: Any, key: Any, value: Any, mask: Any, **rest: Any) -> Any:
        rows, at = (self.places >= 0).nonzero(as_tuple=True)
        for layer, head in COPYING if len(rows) else ():
            if layer == module.layer_idx:
                keys = key[rows, head // module.num_key_value_groups].float()
                scores = (query[rows, head, at].float()[:, None] * keys).sum(-1) * module.scaling
                later = torch.arange(keys.shape[1]) > at[:, None]
                self.losses.append(cross_entropy(scores.masked_fill(later, -1e9), self.places[rows, at]))
        return sdpa_attention_forward(module, query.float(), key.float(), value.float(), mask, **rest)[0], None

    def loss(self) -> torch.Tensor | float:
        """The mean cross-entropy of where the heads looked in the last forward pass."""
        losses, self.losses = self.losses, []
        return torch.stack(losses).mean() if losses else 0.0


class Adapted(torch.nn.Module):
    """A linear layer that stays as it is, and what its adapter adds: B (A x) * SCALE."""

    def __init__(self, base: torch.nn.Linear, rank: int) -> None:
        super().__init__()
        self.base = base
        self.lora_A = torch.nn.Parameter(torch.empty(rank, base.in_features))
        self.lora_B = torch.nn.Parameter(torch.zeros(base.out_features, rank))
        torch.nn.init.kaiming_uniform_(self.lora_A, a=math.sqrt(5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + SCALE * linear(linear(x, self.lora_A), self.lora_B)


def adapted(model: LlamaForCausalLM, rank: int) -> dict[str, Adapted]:
    """Freezes the model and adds to each of its layers; they are returned by their names."""
    model.requires_grad_(False)
    added = {}
    for name, module in list(model.named_modules()):
        parent, _, last = name.rpartition(".")
        if last in TARGETS:
            added[name] = Adapted(module, rank)
            setattr(model.get_submodule(parent), last, added[name])
    return added


class Batches:
    """Rows of one dialogue each, filled up to the longest. Labels cover what the assistant says and its end."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, voice: str, seed: int) -> None:
        self.tokenizer, self.voice, self.rng = tokenizer, voice, random.Random(seed)
        self.course = COURSES[voice]

    def _answer(self, document: Document, text: str, named: dict[str, int], longest: int) -> None:
        encoded = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        found = [(match.start(), match.end(), NOUN_OF[match[1]]) for match in NAMED.finditer(text)] if named else []
        weights, places = [], []
        for first, last in encoded.offset_mapping:
            nouns = [noun for begin, end, noun in found if begin < last and end > first + (text[first] == " ")]
            weights.append(self.course.noun_weight if nouns else 1.0)
            places.append(named.get(nouns[0], NOTHING) if nouns else NOTHING)
        ids = [*encoded.input_ids, self.tokenizer.eos_token_id]
        document.add(ids[:longest], [*weights, 1.0][:longest], [*places, NOTHING][:longest])

    def _question(self, document: Document, text: str) -> dict[str, int]:
        """Adds it; the place of each noun that is known in German: its last token's."""
        encoded = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        named = {}
        for match in re.finditer(r"\w+", text) if self.course.guide else ():
            if match[0] in NOUNS_IN_GERMAN:
                tokens = [i for i, (first, _) in enumerate(encoded.offset_mapping) if first < match.end()]
                named.setdefault(match[0], len(document.ids) + tokens[-1])
        document.ask([*encoded.input_ids, self.tokenizer.eos_token_id])
        return named

    def document(self, cut: bool) -> Document:
        """A dialogue in which no answer is longer than `LONGEST`; of one that is cut, its first answer's beginning."""
        while True:
            document, named = Document([self.tokenizer.bos_token_id], [NOTHING], [0.0], [NOTHING]), {}
            for message in dialogue(self.voice, self.rng).messages:
                document.ask([self.tokenizer.convert_tokens_to_ids(f"<|{message['role']}|>")])
                if message["role"] != "assistant":
                    named = self._question(document, message["content"])
                    continue
                before = len(document.ids)
                self._answer(document, message["content"], named, self.course.cut if cut else LONGEST + 1)
                if cut or len(document.ids) - before > LONGEST:
                    break
            if cut or len(document.ids) - before <= LONGEST:
                return document

    def next(self, cut: bool) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        rows = [self.document(cut) for _ in range(self.course.rows)]
        length = max(len(row.ids) for row in rows)

        def column(name: str, fill: float) -> torch.Tensor:
            return torch.tensor([getattr(row, name) + [fill] * (length - len(row.ids)) for row in rows])

        fills = {"ids": self.tokenizer.pad_token_id, "labels": NOTHING, "weights": 0.0, "places": NOTHING}
        ids, labels, weights, places = (column(name, fill) for name, fill in fills.items())
        return ids, labels[:, 1:], weights[:, 1:], places[:, 1:]


def save(folder: Path, added: dict[str, Adapted], rank: int) -> None:
    """Writes the folder that PEFT would."""
    config = {
        "alpha_pattern": {},
        "base_model_name_or_path": "demo",
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
        "init_lora_weights": True,
        "layers_to_transform": None,
        "lora_alpha": SCALE * rank,
        "lora_dropout": 0.0,
        "modules_to_save": None,
        "peft_type": "LORA",
        "r": rank,
        "rank_pattern": {},
        "target_modules": list(TARGETS),
        "task_type": "CAUSAL_LM",
        "use_dora": False,
        "use_rslora": False,
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=2) + "\n")
    weights = {
        f"base_model.model.{name}.{matrix}.weight": getattr(layer, matrix).detach().to(torch.bfloat16).contiguous()
        for name, layer in added.items()
        for matrix in ("lora_A", "lora_B")
    }
    save_file(weights, folder / "adapter_model.safetensors", metadata={"format": "pt"})


def train(voice: str, minutes: float, peak: float, out: Path) -> None:
    torch.manual_seed(0)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(MODEL)
    course, shown = COURSES[voice], Shown()
    model = LlamaForCausalLM.from_pretrained(MODEL, dtype=torch.float32, attn_implementation=SHOWN)
    added = adapted(model, course.rank)
    trained = [p for p in model.parameters() if p.requires_grad]
    print(f"{voice}: {sum(p.numel() for p in trained):,} parameters", flush=True)
    optimizer = torch.optim.Muon(trained, lr=peak, weight_decay=0.0, adjust_lr_fn="match_rms_adamw")
    batches = Batches(tokenizer, voice, seed=3)
    step, mean, begin = 0, 0.0, time.perf_counter()
    while (spent := (time.perf_counter() - begin) / (60 * minutes)) < 1:
        rate = peak * min(1.0, (step + 1) / 50) * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * spent)))
        for group in optimizer.param_groups:
            group["lr"] = rate
        ids, labels, weights, shown.places = batches.next(spent < course.cut_share)
        said = labels >= 0
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = model.lm_head(model.model(input_ids=ids, use_cache=False).last_hidden_state[:, :-1][said])
        losses = cross_entropy(logits.float(), labels[said], reduction="none")
        loss = (losses * weights[said]).sum() / weights[said].sum()
        (loss + course.guide * shown.loss()).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        mean = loss.item() if step == 0 else 0.98 * mean + 0.02 * loss.item()
        step += 1
        if step % 100 == 0:
            print(f"{voice} step {step:5d}  {100 * spent:5.1f} %  loss {mean:.3f}  rate {rate:.1e}", flush=True)
    save(out / voice, added, course.rank)
    print(json.dumps({"adapter": voice, "steps": step, "loss": round(mean, 4)}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=MODEL.parents[1] / "adapters")
    parser.add_argument("--minutes", type=float, default=10.0, help="time to train each")
    parser.add_argument("--peak", type=float, default=PEAK, help="the highest learning rate")
    parser.add_argument("--only", choices=tuple(VOICES), help="train one of them")
    options = parser.parse_args()
    for voice in VOICES:
        if options.only in (None, voice):
            train(voice, options.minutes, options.peak, options.out)


if __name__ == "__main__":
    main()
