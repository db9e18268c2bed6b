"""One request whole: its text by token, and its next turns."""
