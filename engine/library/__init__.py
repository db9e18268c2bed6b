"""Many runs on disk: what each one was, told without opening it, and several of them side by side. No torch."""

from engine.library.facts import LaneFacts, RunFacts, read_facts
from engine.library.likeness import Making, differences
from engine.library.reading import read_library
from engine.library.side_by_side import MOST_SIDES, SideBySide, read_side_by_side, run_title
from engine.library.strip import HELD, IDLE, Strip
