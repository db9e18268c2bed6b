"""What weights, pool and activations take, and whether that fits."""

from engine.memory.datasheet import TAKEN, Datasheet, datasheets, find_datasheet, published
from engine.memory.fit import DeviceMemory, Fit, fits, model_info, simple_kv
from engine.memory.rules import kv_capacity, residual_bytes
from engine.memory.splitting import rank_counts, why_unstaged, why_whole
