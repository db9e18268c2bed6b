"""How each quantization is loaded and computed with: bitsandbytes, torchao, AWQ."""
