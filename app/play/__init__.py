"""The Play page: choose, prompt, and watch."""
