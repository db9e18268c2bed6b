"""packaging/colour_blind.py: what it keeps, what it merges, what it writes."""

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from PySide6.QtGui import QColor, QImage

SCRIPT = Path(__file__).parents[2] / "packaging" / "colour_blind.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("colour_blind", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("deficiency", ["deuteranopia", "protanopia", "tritanopia"])
def test_greys_stay_as_they_are(script, deficiency) -> None:
    greys = np.repeat(np.linspace(0, 1, 9)[:, None], 3, axis=1)
    assert np.abs(script.simulated(greys, deficiency) - greys).max() < 0.004
    assert np.allclose(np.sum(script.MATRICES[deficiency], axis=1), 1, atol=1e-5)


def test_red_and_green_come_near_each_other_for_some_and_blue_and_green_for_others(script) -> None:
    red, green, blue = np.array([0.8, 0.35, 0.3]), np.array([0.45, 0.55, 0.2]), np.array([0.1, 0.5, 0.75])

    def nearer(one, other, deficiency: str) -> float:
        seen = [script.simulated(color, deficiency) for color in (one, other)]
        return float(np.linalg.norm(seen[0] - seen[1]) / np.linalg.norm(one - other))

    assert nearer(red, green, "deuteranopia") < 0.5
    assert nearer(red, green, "protanopia") < 0.75
    assert nearer(blue, green, "tritanopia") < nearer(blue, green, "deuteranopia")


def test_each_picture_is_written_beside_the_first(script, tmp_path: Path) -> None:
    image = QImage(5, 3, QImage.Format.Format_RGB32)
    image.fill(QColor("#cc5544"))
    image.save(str(tmp_path / "a.png"))
    for deficiency in script.MATRICES:
        written = script.simulate(tmp_path / "a.png", deficiency)
        assert written == tmp_path / f"a-{deficiency}.png"
        seen = QImage(str(written))
        assert (seen.width(), seen.height()) == (5, 3)
        wanted = np.rint(script.simulated(np.array([0xCC, 0x55, 0x44]) / 255, deficiency) * 255)
        color = seen.pixelColor(4, 2)
        assert [color.red(), color.green(), color.blue()] == wanted.tolist()
    with pytest.raises(ValueError, match="not a picture"):
        script.simulate(tmp_path / "none.png", "tritanopia")
