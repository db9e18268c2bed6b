"""Shows a few attention heads where to look while the model learns to copy: at the tokens just before, and at the
place in the text that is said again ("In-context Learning and Induction Heads", Olsson et al. 2022). Left alone, the
demo model copied nothing after 1,000 steps; shown where to look, it told most stories again after as many.
"""

import re
from difflib import Match, SequenceMatcher
from typing import Any

import torch
from torch.nn.functional import cross_entropy
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward

NAME = "guided"
BEFORE = {(0, 1): 1, (1, 7): 1, (1, 1): 2, (2, 2): 1}  # (layer, head): how many tokens back it looks
COPYING = ((3, 1), (3, 2), (4, 3), (4, 4))  # heads that look at the token to be said next
WORD = re.compile(r"\w+|[^\w\s]")
SHORTEST, LETTERS = 2, 3  # words that are a copy; letters of one that is a copy alone


def copied(source: str, question: str, answer: str) -> dict[int, tuple[bool, int]]:
    """Which letters of the answer were said before: whether in the `question` and not in `source`, and at which letter
    there. Runs of `SHORTEST` words are compared, and single ones with the question's."""
    texts = [[(m[0].lower(), m.start()) for m in WORD.finditer(text)] for text in (source, question, answer)]
    before, asked, said = ([word for word, _ in text] for text in texts)
    blocks = SequenceMatcher(None, before, said, autojunk=False).get_matching_blocks()
    if before == said:
        blocks = [Match(0, 0, len(said))]
    found = {b.b + i: (False, b.a + i) for b in blocks if b.size >= SHORTEST for i in range(b.size)}
    for place, word in enumerate(said):
        if place not in found and len(word) >= LETTERS and word in asked:
            found[place] = True, asked.index(word)
    letters = {}
    for place, (in_question, old) in found.items():
        word, begin = texts[2][place]
        for i in range(len(word)):
            letters[begin + i] = in_question, texts[1 if in_question else 0][old][1] + i
    return letters


class GuidedHeads:
    """While `on`, gathers what `loss()` needs from the forward pass of a model with `attn_implementation="guided"`."""

    def __init__(self) -> None:
        self.on = True
        self.looked: list[tuple[int, int, torch.Tensor]] = []
        self.said: list[torch.Tensor] = []
        AttentionInterface.register(NAME, self._attend)

    def _attend(self, module: Any, query: Any, key: Any, value: Any, mask: Any, **rest: Any) -> Any:
        layer = module.layer_idx
        for head in range(query.shape[1]) if self.on else ():
            if (layer, head) not in BEFORE and (layer, head) not in COPYING:
                continue
            shared = head // module.num_key_value_groups
            scores = (query[:, head] @ key[:, shared].transpose(1, 2)).float() * module.scaling
            later = torch.ones(scores.shape[1:], dtype=torch.bool).triu(1)
            scores = scores.masked_fill(later, -1e9)
            self.looked.append((layer, head, scores))
            if (layer, head) in COPYING:
                columns = slice(head * module.head_dim, (head + 1) * module.head_dim)
                found = scores.softmax(-1).to(value.dtype) @ value[:, shared]
                self.said.append(found @ module.o_proj.weight[:, columns].to(value.dtype).T)
        return sdpa_attention_forward(module, query, key, value, mask, **rest)

    def loss(self, model: Any, ids: torch.Tensor, sources: torch.Tensor) -> torch.Tensor:
        """Cross-entropy of where the heads looked, their mean, and of what the copying ones say together, as loud as
        they are. `sources` (rows, length): the place of each token's next one in the text that it copies, -1 where it
        copies none: there a copying head looks at the row's first token."""
        places, copies, losses = torch.arange(ids.shape[1]), sources >= 0, []
        for layer, head, scores in self.looked:
            back = BEFORE.get((layer, head))
            wanted = sources.clamp(min=0) if back is None else (places - back).expand_as(sources)
            for asked in (copies, ~copies) if back is None else (wanted >= 0,):
                losses.append(cross_entropy(scores[asked], wanted[asked]))
        copies = copies[:, :-1]
        said = torch.stack(self.said).sum(0)[:, :-1][copies] / self.loudness[:, :-1][copies]
        heard = model.lm_head(said * model.model.norm.weight)
        self.looked.clear()
        self.said.clear()
        self.heard = cross_entropy(heard.float(), ids[:, 1:][copies])
        return torch.stack(losses).mean() + self.heard

    def hear(self, norm: Any, given: tuple[torch.Tensor]) -> None:
        """A forward hook before the last norm: how loud everything is there."""
        self.loudness = given[0].detach().float().pow(2).mean(-1, keepdim=True).sqrt()
