"""Fields that are declared once, each bound to a value: any form, and that of an engine's settings."""
