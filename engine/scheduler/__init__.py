"""Which rows run next, and who owns which KV block. Pure Python."""
