"""The commands, one a file: each adds its arguments and runs."""
