"""The GPU path against its bounds: `python -m engine.bench.gpu`."""
