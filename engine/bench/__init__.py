"""This engine, its peers and the bound, measured in one process, one after the other."""

from time import monotonic

BEGUN = monotonic()  # before what takes seconds to import

from engine import library_warnings  # noqa: E402  # before transformers is imported
