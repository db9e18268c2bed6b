"""The text of an SVG as outlines, so that it looks the same wherever its font is missing."""

import re
from xml.etree import ElementTree

from PySide6.QtCore import QPointF
from PySide6.QtGui import QFont, QPainterPath

SVG = "http://www.w3.org/2000/svg"
NAMES = {"": SVG, "xlink": "http://www.w3.org/1999/xlink"}  # under others, Qt's own reader finds no picture
LETTERS = {QPainterPath.ElementType.MoveToElement: "M", QPainterPath.ElementType.LineToElement: "L"}


def outlined(svg: str, width: str, height: str) -> str:
    """What QSvgGenerator wrote, at a size with its unit, each text as a path that keeps its words as its label."""
    for prefix, name in NAMES.items():
        ElementTree.register_namespace(prefix, name)
    root = ElementTree.fromstring(svg)
    root.attrib.update(width=width, height=height)
    for text in root.iter(f"{{{SVG}}}text"):
        words = text.text or ""
        given = dict(text.attrib)
        path = QPainterPath()
        path.addText(QPointF(float(given.pop("x")), float(given.pop("y"))), _font(given), words)
        kept = {name: value for name, value in given.items() if not name.startswith(("font", "xml", "{", "stroke"))}
        text.clear()
        text.tag = f"{{{SVG}}}path"
        text.attrib.update({**kept, "stroke": "none", "aria-label": words.strip(), "d": path_data(path)})
    return ElementTree.tostring(root, encoding="unicode")


def _font(given: dict[str, str]) -> QFont:
    """That of a text's attributes."""
    font = QFont()
    font.setFamilies([family.strip(" '\"") for family in given["font-family"].split(",")])
    font.setPixelSize(max(1, round(float(re.sub(r"[a-z]+$", "", given["font-size"])))))
    font.setWeight(QFont.Weight(int(given.get("font-weight", "400"))))
    font.setItalic(given.get("font-style", "normal") == "italic")
    return font


def path_data(path: QPainterPath) -> str:
    """The path in SVG's words."""
    parts, at = [], 0
    while at < path.elementCount():
        element = path.elementAt(at)
        if element.type is QPainterPath.ElementType.CurveToElement:
            ends = [path.elementAt(at + i) for i in range(3)]
            parts.append("C" + " ".join(f"{end.x:.2f} {end.y:.2f}" for end in ends))
            at += 3
        else:
            parts.append(f"{LETTERS[element.type]}{element.x:.2f} {element.y:.2f}")
            at += 1
    return "".join(parts)
