"""What clients send, checked: each field by its name, none ignored."""

from engine.serving.asked.chat import AskedChat
from engine.serving.asked.completion import AskedCompletion
from engine.serving.asked.reading import read
from engine.serving.asked.sampled import Sampled
from engine.serving.asked.tokens import AskedText, AskedTokens
