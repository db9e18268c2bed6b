"""Disaggregation: prompts are computed by a process of their own, into the blocks from which this one decodes."""
