"""What config and tensors' names say of an AWQ checkpoint, and which of them cannot be run. No torch."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from engine.config.checks import InvalidInput, check, whole

COLUMNS = 8  # outputs whose codes share an int32
ROLES = {"gate_proj": "gate", "up_proj": "up", "down_proj": "down", "w1": "gate", "w3": "up", "w2": "down"}
_EXPERT = re.compile(rf"\.(?P<layer>\d+)\.[\w.]*\bexperts\.(?P<expert>\d+)\.(?P<role>{'|'.join(ROLES)})(\.qweight)?$")
ORIGINAL = "use the original model, or an AWQ checkpoint made as 4-bit gemm"


@dataclass(frozen=True, slots=True)
class AwqSettings:
    """`group`: inputs that share a scale, -1 for all; `skipped`: parts of the names of layers that stay as they are."""

    group: int
    skipped: tuple[str, ...] = ()

    def skips(self, name: str) -> bool:
        """Whether the layer of this name stays as it is."""
        return any(part in name for part in self.skipped)


def awq_settings(config: Mapping[str, Any]) -> AwqSettings | None:
    """The settings in the dictionary of a config.json; None where the model is not quantized by AWQ. Raises
    InvalidInput for AWQ of a kind that is not run here."""
    stored = config.get("quantization_config") or (config.get("text_config") or {}).get("quantization_config")
    if not isinstance(stored, Mapping) or str(stored.get("quant_method", "")).lower() != "awq":
        return None

    def value(default: Any, *names: str) -> Any:
        return next((stored[name] for name in names if stored.get(name) is not None), default)

    bits = value(4, "bits", "w_bit")
    group = value(128, "group_size", "q_group_size")
    layout = str(value("gemm", "version", "format")).lower()
    skipped = value([], "modules_to_not_convert")
    has = "this AWQ checkpoint has"
    check(bits == 4, f"{has} bits", bits, f"only 4 bits are run here; {ORIGINAL}")
    check(layout == "gemm", f"{has} version", layout, f"only gemm is run here; {ORIGINAL}")
    with_zeros = value(True, "zero_point") is True
    check(with_zeros, f"{has} zero_point", with_zeros, f"only AWQ with zero points is run; {ORIGINAL}")
    if group != -1:
        whole(f"{has} group_size", group, rule="it is a whole number of at least 1, or -1; fetch the model again")
    named = isinstance(skipped, list) and all(isinstance(part, str) for part in skipped)
    check(named, f"{has} modules_to_not_convert", skipped, "it is a list of names; fetch the model again")
    return AwqSettings(group, tuple(skipped))


def holds_awq(names: Iterable[str]) -> bool:
    """Whether there are packed weights among these tensors."""
    return any(name.endswith(".qweight") for name in names)


def check_names(names: Iterable[str], model_type: str) -> None:
    """Raises InvalidInput for packed weights of a model that AWQ is not run for, and for a file without any."""
    names = list(names)
    for name in names:
        if name.endswith(".act.scales"):
            raise InvalidInput(
                f"model type {model_type!r}: this AWQ checkpoint scales activations too ({name}), which is not run "
                f"here; {ORIGINAL.split(',')[0]}"
            )
        if name.endswith(".qweight") and ".experts." in name and expert_of(name) is None:
            raise InvalidInput(
                f"model type {model_type!r}: the experts of this checkpoint are AWQ ({name}), in a form that is not "
                f"known here; {ORIGINAL.split(',')[0]}"
            )
    if not holds_awq(names):
        raise InvalidInput("config.json says AWQ, but the weights are not packed (no qweight); fetch the model again")


def expert_of(name: str) -> tuple[str, int, str] | None:
    """Which of a layer's experts a packed weight is of: the layer's number, the expert's, and whether it is its "gate",
    "up" or "down"; None of other weights."""
    found = _EXPERT.search(name)
    return None if found is None else (found["layer"], int(found["expert"]), ROLES[found["role"]])


def check_group(settings: AwqSettings, name: str, inputs: int, zeros: int) -> None:
    """Raises InvalidInput when a layer of `inputs` inputs holds `zeros` rows of zeros and the config says otherwise."""
    group = inputs if settings.group == -1 else settings.group
    if zeros * group != inputs:
        held = f"groups of {inputs // zeros}" if zeros and inputs % zeros == 0 else f"{zeros} groups"
        raise InvalidInput(
            f"config.json says group_size={settings.group}, but the weights of {name} ({inputs} inputs) hold {held}; "
            "fetch the model again, or correct group_size"
        )
