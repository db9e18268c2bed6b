"""Why the figures of two runs do not say which way of batching is quicker: all that differs beside it."""

from collections.abc import Sequence

from engine.library.facts import RunFacts


def differences(runs: Sequence[RunFacts]) -> tuple[str, ...]:
    """What the runs do not have in common, in words, the gravest first: "prompts", "model". Empty where they are of
    one workload, model and machine."""
    told = {
        "prompts": [run.workload for run in runs],
        "model": [run.model for run in runs],
        "quantization": [run.quantization for run in runs],
        "machine": [run.machine for run in runs],
    }
    return tuple(word for word, values in told.items() if len(set(values)) > 1)
