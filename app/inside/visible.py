"""Tokens' texts as pictures show them. No Qt in here."""

VISIBLE = str.maketrans({"\n": "↵", "\t": "⇥", "\r": "␍"})  # line breaks and tabs, that move nothing
