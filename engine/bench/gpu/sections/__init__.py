"""What the GPU bench measures, a subject a file; `engine.bench.gpu.run` has their order and their seconds."""
