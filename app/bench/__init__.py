"""What the window costs: frames, first paint, the engine's throughput beside it. Only `batchscope bench` asks."""
