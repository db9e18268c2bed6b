"""A lane of a race: choosing it, and what it shows while it runs."""
