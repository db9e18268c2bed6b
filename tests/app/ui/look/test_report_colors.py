"""A report's colours are those of the window."""

import re

import pytest
from PySide6.QtGui import QColor

import resources
from app.ui.look import theme

TOKENS = ("window", "panel", "field", "text", "secondary", "accent", "good", "warn", "bad")


@pytest.mark.parametrize("of", [theme.LIGHT, theme.DARK], ids=lambda of: of.name)
def test_the_reports_sheet_has_the_colours_of_the_theme(of: theme.Theme) -> None:
    sheet = resources.path("report/report.css").read_text(encoding="utf-8").split("@media print")[0]
    blocks = [block for block in re.findall(r"\{([^{}]*)\}", sheet) if f"color-scheme: {of.name};" in block]
    assert len(blocks) == 2, "what the system says, and what a notebook says"
    for block in blocks:
        told = dict(re.findall(r"--([\w-]+): ([^;]+);", block))
        assert {name: QColor(told[name]) for name in TOKENS} == {name: getattr(of, name) for name in TOKENS}
        assert (float(told["lightness"]), float(told["chroma"])) == (of.lightness, of.chroma)
