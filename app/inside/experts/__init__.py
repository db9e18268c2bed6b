"""Experts of a mixture: which of them each step's tokens were sent to, and how many a step activates."""
