"""How evenly the ranks that share a mixture's experts out are asked: each layer waits for the busiest of them."""

import numpy as np

from engine.trace.records import Array, Header


def rank_loads(header: Header, sent: Array) -> Array:
    """`[layers, ranks]`: of what each layer sent to each expert, `[layers, experts]`, what each rank's experts got. Of
    no rank where all have a part of every expert."""
    columns = [sent[:, begin:end].sum(1) for begin, end in header.rank_experts]
    return np.stack(columns, 1) if columns else np.zeros((len(sent), 0), np.int64)


def imbalance(loads: Array) -> float:
    """What the busiest rank of each layer got, of all layers, in even shares: 1 where all got as much, the number of
    ranks where one got all. Of nothing sent 1."""
    total = float(loads.sum())
    return float(loads.max(1).sum()) * loads.shape[1] / total if total else 1.0
