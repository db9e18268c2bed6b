"""The answers of /v1/chat/completions."""

from engine.serving.answers.form import Form, Json
from engine.serving.answers.told import TokensTold

THOUGHTS = "reasoning_content"  # as DeepSeek's interface calls them


class ChatForm(Form):
    prefix, whole, part = "chatcmpl", "chat.completion", "chat.completion.chunk"
    parted = True

    def choice(self, index: int, text: str, told: TokensTold | None, finish: str, thoughts: str = "") -> Json:
        message = {"role": "assistant", "content": text} | ({THOUGHTS: thoughts} if thoughts else {})
        logprobs = told.as_chat() if told is not None else None
        return {"index": index, "message": message, "logprobs": logprobs, "finish_reason": finish}

    def first(self, index: int) -> Json | None:
        said = {"role": "assistant", "content": ""}
        return {"index": index, "delta": said, "logprobs": None, "finish_reason": None}

    def delta(self, index: int, text: str, told: TokensTold | None, finish: str | None, thoughts: str = "") -> Json:
        said = {"content": text} if text or (told is not None and not thoughts) else {}
        if thoughts:
            said[THOUGHTS] = thoughts
        logprobs = told.as_chat() if told is not None else None
        return {"index": index, "delta": said, "logprobs": logprobs, "finish_reason": finish}
