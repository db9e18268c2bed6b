"""Attention over the paged KV cache, and over padded rows: how it is cut, split over programs and launched."""
