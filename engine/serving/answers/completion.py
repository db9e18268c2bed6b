"""The answers of /v1/completions."""

from engine.serving.answers.form import Form, Json
from engine.serving.answers.told import TokensTold


class CompletionForm(Form):
    prefix, whole, part = "cmpl", "text_completion", "text_completion"

    def choice(self, index: int, text: str, told: TokensTold | None, finish: str, thoughts: str = "") -> Json:
        return self.delta(index, text, told, finish)

    def delta(self, index: int, text: str, told: TokensTold | None, finish: str | None, thoughts: str = "") -> Json:
        logprobs = told.as_completion() if told is not None else None
        return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish}
