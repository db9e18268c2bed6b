"""Where things stand: rows and columns, lines that wrap, distances that follow the zoom."""
