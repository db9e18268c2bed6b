"""The widths that figures are made for. No Qt in here."""

from dataclasses import dataclass

from app.language import tr

VECTOR_SHARP = 2.0  # what is pixels in a drawing has so many times those of a picture: 600 to the inch


@dataclass(frozen=True, slots=True)
class Width:
    """`design` pixels from side to side, `points` of 1/72 inch on the page, `pixels` of a picture. `tall`: how many
    design pixels it is high, where that is not the panel's own choice."""

    design: int
    points: float
    pixels: int
    tall: int | None = None

    @property
    def ratio(self) -> float:
        """Device pixels a pixel of the design, in a picture."""
        return self.pixels / self.design

    @property
    def scale(self) -> float:
        """Points a pixel of the design."""
        return self.points / self.design

    @property
    def millimetres(self) -> float:
        return self.points / 72 * 25.4

    @property
    def dots_an_inch(self) -> float:
        return self.pixels / self.points * 72


# On paper a pixel of the design is 24/37 of a point: the smallest type, 11 pixels, has 7.1 points, text 8.4.
WIDTHS = {
    "column": Width(370, 240.0, 1000),
    "page": Width(777, 504.0, 2100),
    "slide": Width(768, 960.0, 1280, tall=432),
}


def width_words(name: str) -> str:
    """What one of `WIDTHS` is, for people."""
    return {
        "column": tr("one column (85 mm)"),
        "page": tr("both columns (178 mm)"),
        "slide": tr("a slide (1280 × 720)"),
    }[name]
