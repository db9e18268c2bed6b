"""How tokens are chosen, as controls: what Play and the chat have in common."""
