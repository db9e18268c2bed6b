"""What a long trace costs."""
