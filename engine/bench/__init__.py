"""This engine, its peers and the bound, measured in one process, one after the other."""
