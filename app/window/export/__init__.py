"""What the window writes: runs and races as files for others, figures and animations."""
