"""The engine in a process of its own: its face here, its host there, and what is logged when it ends."""
