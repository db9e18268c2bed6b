"""Presenting and tours: the window for a room."""
