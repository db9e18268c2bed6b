"""The Chat page: conversations that are kept, with one model and its presets, one answer or two side by side."""
