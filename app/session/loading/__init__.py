"""How a model is loaded: one engine after another on a lease, how far it is, and cancelling it."""
