"""The wall of streams: a card a request, its text as it grows."""
