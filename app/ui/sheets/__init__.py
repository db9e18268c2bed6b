"""What opens over the window: dialogs, popovers, and the question for a file."""
