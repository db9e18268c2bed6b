"""How a timeline is drawn: its runs and tracks as pixels, and what is painted over them."""
