"""Runs in the window: saved ones shown in the engine's place, a new session, and the viewer that has no engine."""
