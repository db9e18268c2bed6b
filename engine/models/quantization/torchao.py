"""torchao's 8-bit weights with a scale a row; what is multiplied with them stays as it is."""

from __future__ import annotations

from typing import Any


def torchao_config() -> Any:
    """What `from_pretrained` takes as `quantization_config`."""
    from torchao.quantization import Int8WeightOnlyConfig
    from transformers import TorchAoConfig

    return TorchAoConfig(Int8WeightOnlyConfig())
