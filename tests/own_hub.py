"""The address of the tests' hubs and the place of their cache: one of each a process, set before anything reads it.

What asks a hub is forked by the server of `engine.jobs.spawn`, which has read this environment when it began. Where a
test set another, each question would begin with a fresh interpreter that imports everything anew.
"""

import atexit
import os
import shutil
import socket
import tempfile
from pathlib import Path

_folder = Path(tempfile.mkdtemp(prefix="batchscope-hub-"))
atexit.register(shutil.rmtree, _folder, ignore_errors=True)
_kept = socket.socket()  # bound and not listening: the port stays ours, and refuses where no hub serves
_kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
atexit.register(_kept.close)
_kept.bind(("127.0.0.1", 0))
atexit.register(_kept.close)
PORT: int = _kept.getsockname()[1]
ADDRESS = f"http://127.0.0.1:{PORT}"
HOME = _folder / "home"
ENVIRONMENT = {"HF_ENDPOINT": ADDRESS, "HF_HOME": str(HOME), "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
UNSET = (
    *("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"),
    *("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"),
)


def begin() -> None:
    """Of this process and of all that it starts."""
    os.environ.update(ENVIRONMENT)
    for name in UNSET:
        os.environ.pop(name, None)


def keep_in(folder: Path) -> None:
    """From now on the cache is there. What reads this environment may have made a folder of its own before."""
    if HOME.is_dir() and not HOME.is_symlink():
        shutil.rmtree(HOME)
    HOME.unlink(missing_ok=True)
    HOME.symlink_to(folder)
