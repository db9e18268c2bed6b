"""The process around the window: its event loop, the welcome of a start, and incidents that are told."""
