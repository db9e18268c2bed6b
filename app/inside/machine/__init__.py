"""The machine: load, memory, and a GPU's figures over the run."""
