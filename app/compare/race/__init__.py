"""A race: its session, its charts on one clock, its table of results."""
