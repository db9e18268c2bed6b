"""Presets as a person changes them."""
