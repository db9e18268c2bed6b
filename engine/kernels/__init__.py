"""What computes: Triton kernels for a GPU, plain torch for a CPU; attention, sampling, norms, packed weights."""
