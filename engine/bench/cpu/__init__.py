"""`batchscope bench`: the engine beside transformers' ways of batching, and beside the bound, on a CPU."""
