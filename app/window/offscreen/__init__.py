"""The real window on a machine with no display: the demo played, a run in pictures."""
