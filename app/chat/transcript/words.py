"""An answer's figures in words. No Qt in here."""

from app.chat.store.tree import Facts
from app.words import duration, number

FORMULAS = (
    "From the trace of this request.\n"
    "TTFT = first token − submit\n"
    "tok/s = (tokens − 1) ÷ (last − first token)\n"
    "in = tokens of the whole prompt: system prompt, conversation and template\n"
    "stop = the model ended it, or a stop string; length = cut at max tokens or the context; cancelled = by a person"
)
INTERRUPTED = "not finished: the window closed"


def figures(facts: Facts, *, writes: bool) -> list[str]:
    """From what a person looks for first."""
    parts = []
    if facts.ttft is not None:
        parts.append(f"TTFT {duration(facts.ttft)}")
    if facts.rate is not None:
        parts.append(f"{number(facts.rate)} tok/s")
    if facts.tokens:
        parts.append(f"{facts.tokens:,} token{'' if facts.tokens == 1 else 's'}")
    if facts.prompt_tokens:
        parts.append(f"{facts.prompt_tokens:,} in")
    if facts.reason:
        parts.append(facts.reason)
    elif writes:
        parts.append("answering" if facts.tokens else "waiting")
    elif not facts.error:
        parts.append(INTERRUPTED)
    return parts


def made_by(facts: Facts) -> str:
    """ "Storyteller · demo stories"."""
    return "  ·  ".join(part for part in (facts.preset, facts.model) if part)
