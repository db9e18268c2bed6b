"""What is known of an AWQ checkpoint before it is made."""

import contextlib
import re
from dataclasses import dataclass
from pathlib import Path

from app import storage
from engine import InvalidInput, ModelSpec
from engine.checkpoints import local_info
from engine.config import quantized_bytes
from engine.quality import AwqRecipe, check_recipe, read_text

GROUPS = (128, 64, 32)
STORED = 2  # bytes of a weight that is not quantized: float16, as autoawq writes it


@dataclass(frozen=True, slots=True)
class RecipeCheck:
    """What is known of a recipe before it begins. `size` and `original` are bytes on disk, `letters` those of the
    text, `group` the largest that divides all layers, 0 where that is not known; `error` why it cannot begin."""

    error: str = ""
    size: int = 0
    original: int = 0
    letters: int = 0
    group: int = 0


def checked(recipe: AwqRecipe) -> RecipeCheck:
    """Blocks on disk; never raises."""
    size = original = letters = group = 0
    with contextlib.suppress(InvalidInput, OSError):
        letters = len(read_text(recipe.calibration))
    with contextlib.suppress(InvalidInput, OSError):
        info = local_info(ModelSpec(recipe.source, revision=recipe.revision))
        group = next((g for g in GROUPS if not any(inputs % g for inputs, _ in info.linears)), 0)
        size = quantized_bytes("awq", info.linears, STORED, recipe.group) + STORED * info.others
        original = info.weight_bytes
    try:
        check_recipe(recipe)
    except (InvalidInput, OSError) as error:
        return RecipeCheck(str(error), size, original, letters, group)
    return RecipeCheck("", size, original, letters, group)


def suggested_folder(source: str) -> Path:
    """A folder in the app's own that is not there yet."""
    name = re.sub(r"[^\w.-]+", "-", Path(source).name or source).strip("-.") or "model"
    folder, count = storage.data() / "models" / f"{name}-awq", 2
    while folder.exists():
        folder, count = folder.with_name(f"{name}-awq-{count}"), count + 1
    return folder
