"""Figures at a paper's widths: their size, their type, their fonts, and what goes with them."""

import re
from itertools import product
from math import hypot
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from PySide6.QtGui import QImage

from app.__main__ import main
from app.figure.drawing import drawn_figure, read
from app.figure.subject import PANELS, RACE, Figure, Subject
from app.figure.width import WIDTHS
from app.inside.insights import INSIGHTS
from engine import InvalidInput
from engine.export import commands
from tests.app.figure.conftest import Files

pypdf = pytest.importorskip("pypdf")
TITLES = {insight.name: insight.title for insight in INSIGHTS}


def draw(file: Path, panel: str, width: str, path: Path, lane: int | None = None) -> Path:
    subject = Subject(str(file), panel, lane).checked()
    drawn_figure(Figure(subject, width), read(subject, lambda progress: None), path)
    return path


def told(page: Any) -> tuple[str, list[float]]:
    """The text of a page, none of which lies beyond its rims, and its sizes in points."""
    sizes: list[float] = []

    def hear(words: str, about: list[float], at: list[float], font: object, size: float) -> None:
        if words.strip():
            up = (at[2] * about[i] + at[3] * about[i + 2] for i in (0, 1))  # text may be slanted
            sizes.append(size * hypot(*up))
            x, y = (at[4] * about[i] + at[5] * about[i + 2] + about[i + 4] for i in (0, 1))
            assert -0.5 <= x < float(page.mediabox.width) - 3, words
            assert -0.5 <= y < float(page.mediabox.height), words

    return " ".join(page.extract_text(visitor_text=hear).split()), sizes


@pytest.mark.parametrize(("panel", "width"), [*product(PANELS, ("column", "page")), ("timeline", "slide")])
def test_a_panel_as_pdf_has_the_width_of_its_place_and_type_that_can_be_read(
    files: Files, panel: str, width: str, tmp_path: Path
) -> None:
    page = pypdf.PdfReader(draw(files.run, panel, width, tmp_path / "a.pdf")).pages[0]
    wide = float(page.mediabox.width)
    assert wide / 72 * 25.4 == pytest.approx({"column": 84.7, "page": 177.8, "slide": 338.7}[width], abs=0.2)
    assert wide == pytest.approx(WIDTHS[width].points, abs=0.5)
    text, sizes = told(page)
    assert TITLES[panel].upper() in text
    assert min(sizes) >= (13.5 if width == "slide" else 7) * 0.995  # 18 of a slide's 1280 pixels
    for font in page["/Resources"]["/Font"].values():
        (inner,) = font.get_object()["/DescendantFonts"]
        assert "/FontFile2" in inner.get_object()["/FontDescriptor"], f"{font.get_object()['/BaseFont']} is not in it"


def test_a_drawing_needs_no_font(files: Files, tmp_path: Path) -> None:
    path = draw(files.run, "timeline", "column", tmp_path / "a.svg")
    root = ElementTree.parse(path).getroot()
    names = {element.tag.rpartition("}")[2] for element in root.iter()}
    assert "text" not in names
    assert root.get("width") == "240pt"
    labels = {element.get("aria-label") for element in root.iter()}
    assert {"TIMELINE", "prefill", "decode", "queue"} <= labels
    outlines = [element.get("d") or "" for element in root.iter() if element.get("aria-label")]
    assert all(re.match(r"M[-\d. ]+[LC]", outline) for outline in outlines)
    source = read(Subject(str(files.run)), lambda progress: None)
    assert "\n".join(commands(source)) in path.read_text(encoding="utf-8").replace("&amp;", "&").replace("&gt;", ">")


@pytest.mark.parametrize(("width", "pixels"), [("column", 1000), ("page", 2100)])
def test_a_picture_has_300_dots_an_inch(files: Files, width: str, pixels: int, tmp_path: Path) -> None:
    image = QImage(str(draw(files.race, RACE, width, tmp_path / "a.png")))
    assert image.width() == pixels
    assert image.dotsPerMeterX() * 0.0254 == pytest.approx(300, abs=0.5)
    assert image.text("Software").startswith("Batchscope ")
    assert "batchscope compare --workload foxes-prompts.jsonl" in image.text("Description")
    assert image.pixelColor(2, 2).name() == "#ffffff"


def test_a_slide_has_its_pixels_and_a_lane_can_be_drawn_alone(files: Files, tmp_path: Path) -> None:
    image = QImage(str(draw(files.race, "memory", "slide", tmp_path / "a.png", lane=0)))
    assert (image.width(), image.height()) == (1280, 720)
    with pytest.raises(InvalidInput, match="no lane 3: the race has 2"):
        draw(files.race, "memory", "slide", tmp_path / "b.png", lane=2)
    with pytest.raises(InvalidInput, match="panel 'race': a run has timeline, "):
        draw(files.run, RACE, "slide", tmp_path / "b.png")


def test_a_race_says_every_lane_and_what_fills_its_slots(files: Files, tmp_path: Path) -> None:
    for width in ("column", "page"):
        path = draw(files.race, RACE, width, tmp_path / f"{width}.pdf")
        text, sizes = told(pypdf.PdfReader(path).pages[0])
        assert min(sizes) >= 7
        for words in (
            "Static batch of 2",
            "Continuous, paged",
            "TOKENS OVER TIME",
            "decode",
            "padding, held",
            "tok/s",
            "done in",
        ):
            assert words in text, width


def test_the_command_line_writes_figures_beside_other_files(files: Files, capsys: pytest.CaptureFixture[str]) -> None:
    figure, table = files.run.with_name("f.pdf"), files.run.with_name("t.csv")
    assert (
        main(["export", str(files.run), "--to", str(figure), str(table), "--panel", "kv_map", "--width", "page"]) == 0
    )
    assert [line.split(": ")[1].split(",")[0] for line in capsys.readouterr().out.splitlines()] == [
        "figure",
        "table of requests",
    ]
    assert float(pypdf.PdfReader(figure).pages[0].mediabox.width) == 504
    for given, words in (
        (["--to", "x.pdf", "--lane", "1"], "--lane 1: is of a race"),
        (["--to", "x.gif", "--seconds", "900"], "seconds=900: an animation lasts from 0.5 to 120 seconds"),
        (["--to", "x.gif", "--size", "901x600"], "size=901x600: sides are even numbers of pixels"),
        (["--to", "nowhere/x.pdf"], "cannot write nowhere/x.pdf: No such file or directory"),
        (["--to", "x.gif", "--fps", "0"], "fps=0: must be from 1 to 60"),
    ):
        assert main(["export", str(files.run), *given]) == 2
        assert words in capsys.readouterr().err
