"""Quantized layers: AWQ's are ours, the others are libraries'."""
