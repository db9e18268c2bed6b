"""This engine, its peers and the bound, measured in one process, one after the other."""

from engine.models import library_warnings  # before transformers is imported
