"""Runs a step's rows on the device: each runner has a layout of the KV cache of its own."""

from engine.runner.choice import make_runner
from engine.runner.runner import Runner, on_gpu_path
