"""A sweep: its session, its charts, its knee."""
