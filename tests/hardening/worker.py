"""Reads broken inputs one after another, in a process that can be killed: `python -m tests.hardening.worker`.

Prints a line of JSON when it begins one and when it has ended it. What writes elsewhere than in its folder, starts a
process or opens a connection is stopped.
"""

import json
import os
import resource
import shutil
import sys
import tempfile
import traceback
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any

from engine.config.checks import InvalidInput
from tests.hardening.targets import TARGETS

GROWTH = 500 << 20  # bytes


class Outside(BaseException):
    """Something that reading a file must not do."""


def watched(folder: Path) -> None:
    """From now on this process writes below the folder alone."""
    allowed = (str(folder), "/dev/null")

    def hook(event: str, given: tuple[Any, ...]) -> None:
        if event == "open":
            path, mode, flags = given
            writes = bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)) if isinstance(flags, int) else False
            inside = isinstance(path, int) or os.path.abspath(os.fsdecode(path)).startswith(allowed)
            if (writes or (mode and set(mode) & set("wax+"))) and not inside:
                raise Outside(f"writes {path}")
        elif event == "os.remove" and os.path.isabs(given[0]) and not os.fsdecode(given[0]).startswith(allowed):
            raise Outside(f"removes {given[0]}")
        elif event in ("os.system", "subprocess.Popen", "os.exec", "os.posix_spawn", "socket.connect"):
            raise Outside(f"{event} {given[:2]}")

    sys.addaudithook(hook)


unseen: list[str] = []  # tracebacks that a library printed and went on


def outcome_of(kind: str, path: Path) -> tuple[str, str]:
    unseen.clear()
    try:
        TARGETS[kind].read(path)
        if unseen:
            return "traceback", unseen[0]
    except InvalidInput as refused:
        return ("refused", "") if str(refused) and len(str(refused)) < 5_000 else ("unclear", str(refused)[:300])
    except Outside as error:
        return "outside", str(error)
    except BaseException:
        return "traceback", traceback.format_exc()
    return "taken", ""


def main(kind: str, wholes: Path, seed: int, begin: int, end: int) -> None:
    sys.dont_write_bytecode = True
    sys.excepthook = lambda *error: unseen.append("".join(traceback.format_exception(*error)))
    out, sys.stdout = sys.stdout, sys.stderr  # what is read may print
    with tempfile.TemporaryDirectory() as place:
        tempfile.tempdir = os.environ["BATCHSCOPE_DATA"] = place
        inputs = sorted(wholes.iterdir())
        if TARGETS[kind].engine:
            import_module("engine.core.child.preload").preload()
        TARGETS[kind].read(inputs[0])  # what is imported at first use
        watched(Path(place))
        for number in range(begin, end):
            rng = Random(f"{kind}/{seed}/{number}")
            whole = rng.choice(inputs)
            path = Path(place) / whole.name
            shutil.copytree(whole, path) if whole.is_dir() else shutil.copyfile(whole, path)
            TARGETS[kind].spoil(path, rng)
            print(json.dumps({"began": number}), file=out, flush=True)
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
            outcome, words = outcome_of(kind, path)
            growth = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10) - before
            if growth > GROWTH:
                outcome, words = "memory", f"{growth >> 20} MB"
            told = {"ended": number, "outcome": outcome, "words": words, "input": whole.name}
            print(json.dumps(told), file=out, flush=True)
            shutil.rmtree(path) if path.is_dir() else path.unlink()


if __name__ == "__main__":
    try:
        main(sys.argv[1], Path(sys.argv[2]), *map(int, sys.argv[3:6]))
    except Exception:  # of the harness itself: the hook above would keep it
        sys.exit(traceback.format_exc())
