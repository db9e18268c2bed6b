"""Attention: what each token of an answer attended to, by layer and head."""
