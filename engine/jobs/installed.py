"""Whether what runs models is installed. What reads and shows traces does without it: that is the viewer."""

from functools import cache
from importlib.util import find_spec

RUNS_MODELS = ("torch", "transformers")
VIEWER_WORDS = "this is the viewer: install Batchscope in full to run models"


@cache
def engine_missing() -> str:
    """Why no model can be run here, in words; "" where one can."""
    return "" if all(find_spec(name) for name in RUNS_MODELS) else VIEWER_WORDS
