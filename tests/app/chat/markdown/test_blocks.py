"""A text that grows gives the same blocks as the whole of it, however it is cut."""

import random

import pytest

from app.chat.markdown.blocks import Block, GrowingText, Kind, parser, split
from app.chat.markdown.code import Ink, pieces

TEXT = """# Head

A paragraph with **bold** and
a second line.

- one
- two
  - inner

    more of inner
3. three
4. four

> quoted
> more

```python
def fox():

    return 1
```
Behind the fence.

| a | b |
|---|--:|
| 1 | 2 |

***

    indented

Setext
======

~~~
open to the end
"""


def told(block: Block) -> tuple[Kind, str]:
    return block.kind, " ".join(f"{token.type}:{token.content}" for token in block.tokens)


@pytest.mark.parametrize("seed", range(5))
def test_blocks_that_are_settled_are_those_of_the_whole_text(seed: int) -> None:
    draw, growing, settled, end, last = random.Random(seed), GrowingText(), [], 0, None
    while end < len(TEXT):
        end = min(len(TEXT), end + draw.randint(1, 9))
        new, last = growing.grow(TEXT[:end])
        settled += map(told, new)
    assert last is not None
    assert [*settled, told(last)] == [told(block) for block in split(parser().parse(TEXT))]


def test_only_the_last_block_is_parsed_again() -> None:
    growing = GrowingText()
    growing.grow("word " * 2000 + "\n\n" + "next")
    settled, last = growing.grow("word " * 2000 + "\n\n" + "next one")
    assert settled == []
    assert last is not None
    assert told(last)[1].count("word") == 0


def test_items_of_a_list_are_blocks_of_their_own_with_their_numbers() -> None:
    blocks = split(parser().parse("7. a\n8. b\n"))
    assert [block.tokens[1].info for block in blocks] == ["7", "8"]


def test_tags_pictures_and_definitions_are_text() -> None:
    (block,) = split(parser().parse("<script>alert(1)</script> [x]: http://a.b"))
    (inline,) = (token for token in block.tokens if token.type == "inline")
    assert [part.type for part in inline.children or ()] == ["text"]
    bad = parser().parse("[x](javascript:alert(1))")
    assert "link_open" not in [part.type for token in bad for part in token.children or ()]


def test_a_fence_names_its_language() -> None:
    (block,) = split(parser().parse("```Python title=x\nx = 1\n```"))
    assert (block.kind, block.language, block.code) == (Kind.CODE, "python", "x = 1")


def test_code_is_told_apart_and_none_of_it_is_lost() -> None:
    code = 'def fox(n: int) -> str:  # jumps\n    return "a" * 3\n'
    found = pieces(code, "python")
    assert "".join(text for text, _ in found) == code
    assert {text.strip(): ink for text, ink in found}["def"] is Ink.KEYWORD
    assert ("fox", Ink.NAME) in [(text.strip(), ink) for text, ink in found]
    assert any(ink is Ink.COMMENT and "jumps" in text for text, ink in found)
    assert pieces(code, "no such language") == [(code, Ink.PLAIN)]
    assert pieces("\n\n x", "python")[0][0].startswith("\n\n")
