"""Whether a prompt fits into the model's context. No Qt in here."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Room:
    """Tokens of a draft and of the conversation with it: at `least` its words alone, at `most` with what a chat
    template writes around them. `context` is the model's, 0 where it is not known; `answer` is what may come after.
    Where `exact` is not set, no tokenizer was at hand: all are guesses."""

    draft: int
    least: int
    most: int
    context: int
    answer: int
    exact: bool = True

    @property
    def too_long(self) -> str:
        """Why it cannot be sent, and what to do; "" where it can."""
        if not (self.exact and self.context and self.least >= self.context):
            return ""
        what = "take out a file, shorten it, or begin a new conversation"
        return f"The prompt has {self.least:,} tokens, the model's context is {self.context:,}: {what}."

    @property
    def words(self) -> str:
        """The count in one line."""
        about = "" if self.exact else "about "
        draft = f"{about}{self.draft:,} token{'' if self.draft == 1 else 's'}"
        if not self.context:
            return draft
        parts = [draft, f"~{self.most:,} of {self.context:,} with the conversation"]
        left = self.context - self.most
        if 0 < left < self.answer:
            parts.append(f"leaves {left:,} for the answer")
        return "  ·  ".join(parts)

    @property
    def short(self) -> str:
        """The same where there is little room."""
        return f"~{self.most:,} of {self.context:,}" if self.context else f"{self.draft:,} tokens"

    @property
    def tight(self) -> bool:
        """Whether the answer will be cut short."""
        return bool(self.context) and self.context - self.most < self.answer
