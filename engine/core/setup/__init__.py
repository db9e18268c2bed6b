"""What a load sets up: memory, roof, graphs, a runner that has been played through."""
