"""What the bundle starts: `batchscope-viewer [RUN ...]` is `batchscope replay RUN`; every other command is as it is."""

import sys
from pathlib import Path

from app.__main__ import main
from engine.compare import RACE_SUFFIX
from engine.trace import RUN_SUFFIX

given = sys.argv[1:]
runs = bool(given) and Path(given[0]).suffix in (RUN_SUFFIX, RACE_SUFFIX)
sys.argv[1:] = ["replay", *given] if runs else given
sys.exit(main())
