"""What a quantization costs: measuring it, and making AWQ checkpoints."""
