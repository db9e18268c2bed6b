"""Triton kernels that multiply rows with a layer's weights, where these are packed or the rows are one."""
