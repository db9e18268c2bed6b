"""Attention over a paged KV cache: `store_kv` and `paged_attention` in Triton, on the CPU, and as a slow oracle."""
