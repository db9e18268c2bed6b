"""What is written next: its words, its files, its preset, and whether it fits."""
