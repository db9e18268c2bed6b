"""Markdown as it grows: parsed and written block by block, code highlighted; nothing is run, nothing is fetched."""
