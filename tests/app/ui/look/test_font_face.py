"""Words where there is little room."""

from PySide6.QtWidgets import QApplication

from app.ui.look import theme
from app.ui.look.font_face import FontFace


def test_the_last_words_begin_with_a_word_and_the_very_last_is_cut(qapp: QApplication) -> None:
    face, text = FontFace(theme.mono(11)), "the robot carried water up the hill"
    assert face.last_words(text, face.width(text) + 1) == text
    for width in range(60, int(face.width(text))):
        cut = face.last_words(text, width)
        assert face.width(cut) <= width
        begun, _, words = cut.partition(" ")
        assert begun == "…"
        assert f" {text}".endswith(f" {words}")
    assert face.last_words("incomprehensibilities", 60).startswith("…")
