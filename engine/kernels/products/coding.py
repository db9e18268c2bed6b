"""How the compiled product holds weights in fewer bits. No torch."""

from enum import IntEnum


class Coding(IntEnum):
    """How a code becomes a number, as `native/codes.h` counts. STEPS: (code - zero) * scale. ENTRIES: an entry of a
    table of 16, times the scale. ENTRIES_TWICE: that, with scales that are entries of a table of 256, times one of
    their own. BYTES: an integer, times the scale. POWERS: an entry of a table of 16, times a power of two."""

    STEPS = 1
    ENTRIES = 2
    ENTRIES_TWICE = 3
    BYTES = 4
    POWERS = 5

    @property
    def bits(self) -> int:
        """Of a code."""
        return 8 if self is Coding.BYTES else 4

    @property
    def word(self) -> int:
        """How many codes it has: inputs must be a multiple of so many, and those that share a scale too."""
        return 32 // self.bits

    @property
    def scale_bytes(self) -> int:
        """Of a scale, a zero included."""
        return 1 if self in (Coding.ENTRIES_TWICE, Coding.POWERS) else 4

    @property
    def swaps(self) -> tuple[tuple[int, int], ...]:
        """What brings a word's codes from their order in a row to that of `codes.h`: every second one in its lower
        half. Each is by how many bits, and the lower place of those that are swapped."""
        bytes_ = (8, 0x0000FF00)
        return (bytes_,) if self is Coding.BYTES else ((4, 0x00F000F0), bytes_)
