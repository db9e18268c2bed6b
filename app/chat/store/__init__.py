"""What is kept of conversations: their turns as a tree, presets, and the file that holds them. No widgets."""
