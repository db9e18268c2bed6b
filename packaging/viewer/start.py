"""What the bundle starts: `batchscope-viewer RUN` is `batchscope replay RUN`; every other command is as it is."""

import sys
from pathlib import Path

from app.__main__ import main
from engine.compare import RACE_SUFFIX
from engine.trace import RUN_SUFFIX

match sys.argv[1:]:
    case ["-P", "-c", program]:  # its own interpreter, as `batchscope doctor` has need of one
        exec(program)
        sys.exit()
    case [run, *_] if Path(run).suffix in (RUN_SUFFIX, RACE_SUFFIX):
        sys.argv.insert(1, "replay")
sys.exit(main())
