"""A conversation as it is read: its turns under each other, their figures, and what can be done with each."""
