"""Beam search as it grows: what was weighed in each step, what lives on, what is finished."""
