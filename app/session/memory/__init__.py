"""What a model takes of a memory: estimated before it is loaded, measured once it is."""
