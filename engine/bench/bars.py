"""transformers' progress bars, which measurements and tests do without."""

from collections.abc import Iterator
from contextlib import contextmanager

import transformers


@contextmanager
def no_bars() -> Iterator[None]:
    """Keeps transformers' own bars off the terminal."""
    shown = transformers.utils.logging.is_progress_bar_enabled()
    transformers.utils.logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            transformers.utils.logging.enable_progress_bar()
