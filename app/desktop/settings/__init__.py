"""The settings dialog: its sections, its rows, and what they act on."""
