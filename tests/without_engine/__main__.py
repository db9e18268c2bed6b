"""`python -m tests.without_engine ARGUMENTS` is `python ARGUMENTS` without what runs models."""

import sys
import tempfile
from pathlib import Path

from tests import without_engine

with tempfile.TemporaryDirectory() as data:
    done = without_engine.run(*sys.argv[1:], data=Path(data))
print(done.stdout, done.stderr, sep="")
sys.exit(done.returncode)
