"""The Models page: what is here and on the hub, and what fits."""
