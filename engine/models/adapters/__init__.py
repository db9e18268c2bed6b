"""Adapters (LoRA) of a loaded model: several in one step, each of its requests' rows alone."""

from engine.models.adapters.adapted import Adapters as Adapters
from engine.models.adapters.install import install as install
