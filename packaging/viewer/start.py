"""What the bundle starts: `batchscope-viewer RUN` is `batchscope replay RUN`; every other command is as it is."""

import sys
from pathlib import Path

from app.__main__ import main
from engine.compare import RACE_SUFFIX
from engine.trace import RUN_SUFFIX

match sys.argv[1:]:
    case ["-c", program] | ["-P", "-c", program]:  # its own interpreter, for light children and `batchscope doctor`
        exec(program)
        sys.exit()
    case [run, *_] if Path(run).suffix in (RUN_SUFFIX, RACE_SUFFIX):
        sys.argv.insert(1, "replay")
sys.exit(main())
