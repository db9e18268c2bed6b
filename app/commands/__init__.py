"""The commands that need no window, one a file."""
