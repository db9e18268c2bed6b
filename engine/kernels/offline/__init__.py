"""Kernels without a GPU: what is launched, what it is compiled for, what its machine code takes."""
