"""Models: loaded by transformers, held as their quantization says, served by our attention."""

from engine import library_warnings  # before transformers is imported
from engine.models.loading import LoadedModel, load, wrap
