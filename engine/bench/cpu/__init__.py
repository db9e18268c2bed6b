"""This engine, transformers' ways of batching and the bound, on a CPU."""
