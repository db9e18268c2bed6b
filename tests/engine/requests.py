"""Requests as a scheduler takes them, for tests that play steps by hand."""

from engine import SamplingParams
from engine.decoding.detokenizer_factory import DetokenizerFactory
from engine.decoding.output import Output
from engine.models.loading import LoadedModel
from engine.scheduler.request import Branch, Request


def make_request(model: LoadedModel, number: int, length: int, params: SamplingParams) -> Request:
    """`length` times the token 5 + number, seeded by the number."""
    request = Request(number, length, params, params.max_tokens, number)
    output = Output(DetokenizerFactory(model.tokenizer)(), params, frozenset(), params.max_tokens)
    request.branches.append(Branch(request, [5 + number] * length, output))
    return request
