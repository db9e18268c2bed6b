"""Rows in columns, as every table of the window has them; a panel's facts as a table."""
