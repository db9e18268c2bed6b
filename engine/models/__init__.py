"""Models: inspected without torch, loaded by transformers, run over the paged KV cache."""
