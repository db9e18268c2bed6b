"""`python -m engine.bench.gpu`: how near to a GPU's own limits the engine comes."""
