"""Beam search: which continuations of a prompt go on, which are done, and how they score. No torch."""

from engine.decoding.beams.path import Path
from engine.decoding.beams.search import BeamSearch, Weighed
