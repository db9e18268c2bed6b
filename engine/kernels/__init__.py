"""Attention: over the paged KV cache in Triton, on the CPU and as a slow oracle; over padded rows in plain torch."""
