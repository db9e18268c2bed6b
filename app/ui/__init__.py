"""Controls, theme, tables, exports: what every page is made of; knows no feature and no run of the engine."""
