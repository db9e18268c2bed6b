"""A GPU that is not there: its tensors, streams whose work waits, captured graphs, memory that ends."""
