"""Who may ask: API keys and JSON web tokens."""
