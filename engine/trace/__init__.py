"""The trace: records, the growing log with its index, metrics, and the file."""
