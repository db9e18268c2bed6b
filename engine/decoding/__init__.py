"""From token ids to text: detokenizing, stop strings, grammars, why a text ends. No torch."""

from engine.decoding.constraints.grammars import missing as grammars_missing
from engine.decoding.detokenizer_factory import DetokenizerFactory
from engine.decoding.output import Output
from engine.decoding.stop import StopStrings
