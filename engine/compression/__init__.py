"""Prompts made shorter, and what that buys and costs. No torch."""

from engine.compression.compressed import METHODS, Compressed, Scored, compress, score
from engine.compression.effect import Effect, Side, compare_compressed
from engine.compression.fields import Fields, schema_of
from engine.compression.pieces import UNITS, Piece
from engine.compression.prompt_parts import KEEPS, parts_of
from engine.compression.strike import joined, keep_most
