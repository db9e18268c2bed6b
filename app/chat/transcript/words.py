"""An answer's figures in words. No Qt in here."""

from app.chat.store.tree import Facts
from app.language import tr, trn
from app.words import duration, number

FORMULAS = tr(
    "From the trace of this request.\n"
    "TTFT = first token − submit\n"
    "tok/s = (tokens − 1) ÷ (last − first token)\n"
    "thought = end of its thoughts − first token\n"
    "in = tokens of the whole prompt: system prompt, conversation and template\n"
    "stop = the model ended it, or a stop string; length = cut at max tokens or the context; cancelled = by a person"
)
INTERRUPTED = tr("not finished: the window closed")


def figures(facts: Facts, *, writes: bool) -> list[str]:
    """From what a person looks for first."""
    parts = []
    if facts.ttft is not None:
        parts.append(f"TTFT {duration(facts.ttft)}")
    if facts.rate is not None:
        parts.append(tr("{rate} tok/s", rate=number(facts.rate)))
    if facts.tokens:
        parts.append(trn("{count:,} token", "{count:,} tokens", facts.tokens))
    if facts.prompt_tokens:
        parts.append(tr("{tokens:,} in", tokens=facts.prompt_tokens))
    if facts.reason:
        parts.append(facts.reason)
    elif writes:
        parts.append(tr("answering") if facts.tokens else tr("waiting"))
    elif not facts.error:
        parts.append(INTERRUPTED)
    return parts


def thought_words(facts: Facts, *, thinking: bool) -> str:
    """The line above an answer's thoughts."""
    if thinking:
        return trn("Thinking …  ·  {count:,} token", "Thinking …  ·  {count:,} tokens", facts.tokens)
    if facts.thought is None:
        return tr("Thoughts")
    seconds = tr("Thought for {seconds}", seconds=duration(facts.thought))
    return trn("{words}  ·  {count:,} token", "{words}  ·  {count:,} tokens", facts.thoughts, words=seconds)


def made_by(facts: Facts) -> str:
    """ "Storyteller · demo stories"."""
    return "  ·  ".join(part for part in (facts.preset, facts.model) if part)
