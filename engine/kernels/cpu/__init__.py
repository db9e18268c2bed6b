"""Attention over the paged cache on a CPU, and the small operations of a step: compiled for this processor where there
is a C compiler, in torch where not."""
