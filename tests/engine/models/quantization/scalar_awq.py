"""AWQ's layout read one code at a time, in plain integers: the oracle that shares nothing with the engine's reading."""

import numpy as np
import torch
from torch import Tensor

BITS = (0, 16, 4, 20, 8, 24, 12, 28)  # where columns 0 to 7 lie in their int32


def decode(qweight: Tensor, qzeros: Tensor, scales: Tensor) -> Tensor:
    """The weight [N, K] in float32."""
    words, zero_words = qweight.tolist(), qzeros.tolist()
    factors = scales.numpy()
    inputs, outputs = len(words), 8 * len(words[0])
    group = inputs // len(zero_words)
    weight = np.empty((outputs, inputs), np.float32)
    for k in range(inputs):
        for n in range(outputs):
            bit = BITS[n % 8]
            code = words[k][n // 8] // 2**bit % 16
            zero = zero_words[k // group][n // 8] // 2**bit % 16
            weight[n, k] = np.float32(code - zero) * np.float32(factors[k // group, n])
    return torch.from_numpy(weight)
