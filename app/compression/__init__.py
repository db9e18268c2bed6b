"""Compressing a prompt: what is struck out, and what that buys and costs."""
