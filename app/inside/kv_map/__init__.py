"""The map of the KV pool: every block and who owns it, or the strips of a contiguous cache."""
