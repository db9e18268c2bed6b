"""Model, batching and sampling: what the next prompts run with."""
