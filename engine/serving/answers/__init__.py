"""What clients get: bodies and chunks in OpenAI's two forms."""

from engine.serving.answers.chat import ChatForm
from engine.serving.answers.completion import CompletionForm
from engine.serving.answers.form import Form
from engine.serving.answers.told import TokensTold
