"""Which model types the engine serves, told without importing transformers: a table that a test compares with it."""

from __future__ import annotations


def why_unsupported(model_type: str) -> str:
    """ "" for a model type that our attention serves; else the reason, with what to choose instead."""
    raise NotImplementedError
