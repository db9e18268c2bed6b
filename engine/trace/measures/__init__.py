"""The measures people steer by: computed from a trace, each with its formula; the limits set on them."""
