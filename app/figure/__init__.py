"""Figures for papers and slides, and animations: panels laid out anew at a size, and drawn by a child process."""
