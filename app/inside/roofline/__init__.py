"""The bottleneck: each step under the machine's roof."""
