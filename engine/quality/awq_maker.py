"""The child's side of `engine.quality.awq_recipe`: autoawq at work. It changes warning filters, so it runs in a process
of its own."""

import json
import shutil
import warnings
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from transformers import AutoModelForCausalLM, PreTrainedModel

from engine.checkpoints.inspect import read_config
from engine.config.specs import InvalidInput, ModelSpec
from engine.jobs.job import Report
from engine.jobs.progress import LoadCancelled, LoadProgress
from engine.models.config import first_line, read_tokenizer, transformers_config
from engine.models.weights import refuse_strays
from engine.quality.awq_recipe import ORIGIN, AwqRecipe, calibration_ids, copied_files
from engine.quality.texts import read_text


def work(arguments: dict[str, Any], report: Report) -> None:
    """Quantizes the model in `folder` into the recipe's `out`, which is removed when that fails."""
    folder, part = Path(arguments.pop("folder")), Path(arguments.pop("out"))
    recipe = AwqRecipe(out=part, **arguments)
    try:
        try:
            part.mkdir(parents=True)
        except OSError as error:
            raise InvalidInput(f"{part.parent} cannot be written ({error.strerror}): choose another folder") from error
        _quantize(recipe, folder, part, report)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise


def _quantize(recipe: AwqRecipe, folder: Path, part: Path, report: Report) -> None:
    import torch

    report(LoadProgress("reading the calibration text"))
    spec = ModelSpec(str(folder))
    transformers_config(folder, spec)
    tokenizer = read_tokenizer(folder, spec)
    ids = calibration_ids(lambda text: tokenizer(text, verbose=False).input_ids, read_text(recipe.calibration), recipe)
    report(LoadProgress("loading the model"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import awq.models.base
        import awq.quantize.quantizer
        from awq import AutoAWQForCausalLM
    awq.quantize.quantizer.tqdm = lambda layers, **_: _told(layers, report)
    awq.models.base.transformers.AutoModelForCausalLM = Whole
    torch.manual_seed(0)
    try:
        model = AutoAWQForCausalLM.from_pretrained(str(folder), trust_remote_code=False, device_map=None)
        report(LoadProgress("running the calibration text"))
        model.quantize(
            tokenizer,
            {"zero_point": True, "q_group_size": recipe.group, "w_bit": 4, "version": "GEMM"},
            calib_data=ids,
            max_calib_samples=recipe.samples,
            max_calib_seq_len=recipe.length,
        )
        report(LoadProgress("writing the checkpoint"))
        model.model.config.use_cache = read_config(folder).get("use_cache", True)  # autoawq switches it off
        model.save_quantized(str(part))
    except (LoadCancelled, InvalidInput):
        raise
    except MemoryError as error:
        raise InvalidInput("there is not enough memory to quantize this model here; fewer samples take less") from error
    except OSError as error:
        raise InvalidInput(f"cannot write the checkpoint: {error.strerror or error}") from error
    except Exception as error:  # its assertions have no words
        raise RuntimeError(f"autoawq stopped: {first_line(error)}") from error
    for path in copied_files(folder):
        shutil.copyfile(path, part / path.name)
    origin: dict[str, Any] = {name: getattr(recipe, name) for name in ("source", "revision", "length", "group")}
    origin |= {"calibration": Path(recipe.calibration).name, "samples": len(ids)}
    origin["versions"] = {name: version(name) for name in ("autoawq", "transformers", "torch")}
    (part / ORIGIN).write_text(json.dumps(origin, indent=2) + "\n")


class Whole:
    """What autoawq loads a model by: all its weights, or InvalidInput. By itself it would make up what is missing."""

    @staticmethod
    def from_pretrained(folder: str, **arguments: Any) -> PreTrainedModel:
        module, loading = AutoModelForCausalLM.from_pretrained(
            folder, output_loading_info=True, ignore_mismatched_sizes=True, **arguments
        )
        refuse_strays(Path(folder), module.config, module, loading)
        return module


def _told(layers: Iterable[int], report: Report) -> Iterator[int]:
    """What autoawq shows as a bar over the layers."""
    each = list(layers)
    for done, layer in enumerate(each):
        report(LoadProgress(f"quantizing layer {done + 1} of {len(each)}", done, len(each)))
        yield layer
    report(LoadProgress("packing", len(each), len(each)))
