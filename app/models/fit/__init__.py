"""What a model takes in each quantization, and whether it fits."""
