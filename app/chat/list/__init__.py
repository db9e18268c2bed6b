"""The conversations that are kept, to choose from and to search."""
