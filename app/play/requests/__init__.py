"""The requests of a trace as a table."""
