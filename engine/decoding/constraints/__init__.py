"""Output that follows a grammar: which tokens may come next. No torch."""

from engine.decoding.constraints.grammars import Grammars
from engine.decoding.constraints.masks import Masks
from engine.decoding.constraints.matcher import Matcher, allowed_bits
