"""Whether a prompt fits into the model's context. No Qt in here."""

from dataclasses import dataclass

from app.language import tr, trn


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
        return tr(
            "The prompt has {tokens:,} tokens, the model's context is {context:,}: "
            "take out a file, shorten it, or begin a new conversation.",
            tokens=self.least,
            context=self.context,
        )

    @property
    def words(self) -> str:
        """The count in one line."""
        if self.exact:
            draft = trn("{count:,} token", "{count:,} tokens", self.draft)
        else:
            draft = trn("about {count:,} token", "about {count:,} tokens", self.draft)
        if not self.context:
            return draft
        parts = [draft, tr("~{tokens:,} of {context:,} with the conversation", tokens=self.most, context=self.context)]
        left = self.context - self.most
        if 0 < left < self.answer:
            parts.append(tr("leaves {tokens:,} for the answer", tokens=left))
        return "  ·  ".join(parts)

    @property
    def short(self) -> str:
        """The same where there is little room."""
        if self.context:
            return tr("~{tokens:,} of {context:,}", tokens=self.most, context=self.context)
        return tr("{tokens:,} tokens", tokens=self.draft)

    @property
    def tight(self) -> bool:
        """Whether the answer will be cut short."""
        return bool(self.context) and self.context - self.most < self.answer
