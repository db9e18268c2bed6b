"""See inside: the panels that look into the engine, a package each, over one trace and one moment."""
