"""Small kernels in place of a model's own code, each proved at load."""
