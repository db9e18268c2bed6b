"""What weights, pool and activations take, and whether that fits."""

from engine.memory.fit import DeviceMemory, Fit, devices_needed, fits, model_info, simple_kv
from engine.memory.rules import kv_capacity, residual_bytes
