"""The child's side of a download: every file at one commit, resumed where it was cut short, checked by its hash.

Files come by plain HTTP: the client's own ways (its unique temporary files, and the xet protocol) begin a file that
was cut short anew. A snapshot is linked together only when all its blobs are whole, and the plan lies beside it until
then: nothing half-downloaded can be taken for whole.
"""

import errno
import hashlib
import os
import re
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from huggingface_hub.utils import WeakFileLock, build_hf_headers, hf_raise_for_status

from engine.checkpoints.hub import cache
from engine.checkpoints.hub.cache import Plan, cache_folder, in_units
from engine.checkpoints.hub.client import Unreachable, address, ask, fault_of, session, told_of, wanted_of, weights_of
from engine.checkpoints.inspect import fault
from engine.config.specs import InvalidInput
from engine.jobs.job import Report
from engine.jobs.progress import LoadProgress

AT_ONCE = 4  # files
WAITS = (0.5, 1.0, 2.0, 4.0, 8.0)  # seconds before each new try of a file from which nothing comes
LONGEST_WAIT = 60.0  # seconds that the hub may ask us to wait
BEAT = 0.1  # seconds between words on how far it is
SETTLING = 1.0  # seconds that files under way have to notice that another was refused
COMMIT = re.compile(r"[0-9a-f]{40}")
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def work(arguments: dict[str, Any], report: Report) -> str:
    """`id`, `revision`, `pickles`, `code`, `waits` (optional) -> the snapshot's folder."""
    id, revision = arguments["id"], arguments["revision"]
    repository = cache.repository_of(id)
    if not arguments["code"] and (folder := _whole(repository, revision, pinned=True)) is not None:
        return str(folder)
    try:
        plan = _asked(id, arguments, report)
    except Unreachable as error:
        if (folder := _whole(repository, revision)) is not None:
            return str(folder)
        raise InvalidInput(f"cannot fetch {id!r}: {_what_is_here(id, repository, revision)}; {error}") from error
    with _disk(repository, plan):
        return str(_Download(id, repository, plan, arguments.get("waits", WAITS)).run(report))


def _commit(repository: Path, revision: str | None) -> str | None:
    """The commit that a revision was when it was last fetched."""
    if revision is not None and COMMIT.fullmatch(revision):
        return revision
    try:
        return (repository / "refs" / (revision or "main")).read_text(encoding="utf-8").strip()
    except OSError:
        return None


def _whole(repository: Path, revision: str | None, pinned: bool = False) -> Path | None:
    """The snapshot of a revision where it can be loaded as it lies there; `pinned`: only if it cannot have changed."""
    commit = _commit(repository, revision)
    if commit is None or (pinned and commit != revision) or cache.plan_file(repository, commit).exists():
        return None
    folder = repository / "snapshots" / commit
    return folder if folder.is_dir() and not fault(folder) else None


def _what_is_here(id: str, repository: Path, revision: str | None) -> str:
    commit = _commit(repository, revision)
    plans = [cache.read_plan(path) for path in (repository / cache.PLANS).glob("*.json")]
    for plan in plans:
        if plan is not None and (plan.commit == commit or plan.revision == (revision or "main")):
            return f"it was downloaded only in part, {in_units(plan.here(repository))} of {in_units(plan.size)}"
    if commit is not None and (folder := repository / "snapshots" / commit).is_dir():
        if any(folder.glob("*.bin")):
            return "its weights are in the local cache as pickle: convert them to safetensors, and load that folder"
        return "it was downloaded only in part"
    return "it is not in the local cache"


def _asked(id: str, arguments: dict[str, Any], report: Report) -> Plan:
    """The plan, with word that we wait, so that who listens can cancel."""
    pool = ThreadPoolExecutor(1, "ask")
    asked = pool.submit(_plan, id, arguments["revision"], arguments["pickles"], arguments["code"])
    pool.shutdown(wait=False)
    while True:
        report(LoadProgress("asking the hub"))
        if wait([asked], BEAT).done:
            return asked.result()


def _plan(id: str, revision: str | None, pickles: bool, code: bool) -> Plan:
    info = ask(id, revision)
    if not COMMIT.fullmatch(str(info.sha)) or ".." in (revision or "").split("/"):  # both become paths
        raise InvalidInput(f"{id}: the hub calls its commit {info.sha!r} at {revision!r}: check HF_ENDPOINT")
    siblings = {s.rfilename: s for s in info.siblings or []}
    wanted = wanted_of(siblings, pickles=pickles, code=code)
    if not weights_of(wanted) and not (pickles and any(n.endswith(".bin") for n in wanted)):
        raise InvalidInput(f"{id}: {fault_of(siblings)}")
    files = {}
    for name in wanted:
        file = siblings[name]
        blob = file.lfs.sha256 if file.lfs is not None else file.blob_id
        if file.size is None or not blob or not re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", blob):
            raise InvalidInput(f"{id}: the hub tells no size or hash of {name}: try again, or check HF_ENDPOINT")
        files[name] = (int(file.size), str(blob))
    return Plan(str(info.sha), revision or "main", files)


@contextmanager
def _disk(repository: Path, plan: Plan) -> Iterator[None]:
    """Refuses what does not fit on the disk, and says in words what the disk refuses."""
    folder = cache_folder()
    place = next(p for p in (repository, *repository.parents) if p.exists())
    remedy = f"delete models that you no longer need from {folder}, or set HF_HOME to a folder on a larger disk"
    need, free = plan.size - plan.here(repository), shutil.disk_usage(place).free
    if need > free:
        raise InvalidInput(f"{in_units(need)} are still to be fetched, and {in_units(free)} are free on disk: {remedy}")
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            raise InvalidInput(
                f"the disk is full ({error.strerror}): {in_units(plan.here(repository))} of {in_units(plan.size)} are "
                f"here and will not be fetched again; {remedy}"
            ) from error
        if error.errno is not None:
            words = f"{folder} cannot be written ({error.strerror}): set HF_HOME to a folder that you may write in"
            raise InvalidInput(words) from error
        raise


class BlobDigest:
    """The hash that names a blob, as it grows: SHA-256 of large files, git's SHA-1 of others."""

    def __init__(self, blob: str, size: int, begun: Path | None) -> None:
        self._blob, self._size = blob, size
        self.begin()
        if begun is not None:
            with begun.open("rb") as file:
                while chunk := file.read(1 << 20):
                    self.add(chunk)

    def begin(self) -> None:
        self.length = 0
        git = b"blob %d\0" % self._size
        self._hash = hashlib.sha256() if len(self._blob) == 64 else hashlib.sha1(git, usedforsecurity=False)

    def add(self, chunk: bytes) -> None:
        self._hash.update(chunk)
        self.length += len(chunk)

    def matches(self) -> bool:
        return self._hash.hexdigest() == self._blob


class _Stopped(Exception):
    pass


class _Download:
    """One snapshot on its way. Each file has a thread of its own, `AT_ONCE` at a time; only `_here` is shared."""

    def __init__(self, id: str, repository: Path, plan: Plan, waits: tuple[float, ...]) -> None:
        self._id, self._repository, self._plan, self._waits = id, repository, plan, waits
        self._here = {blob: cache.here_of(repository / "blobs" / blob) for blob in plan.blobs}
        self._stage = "downloading"
        self._stop = threading.Event()

    def run(self, report: Report) -> Path:
        cache.write_plan(self._repository, self._plan)
        (self._repository / "blobs").mkdir(exist_ok=True)
        locks = self._repository.parent / ".locks" / self._repository.name
        locks.mkdir(parents=True, exist_ok=True)
        names = {blob: name for name, (_, blob) in self._plan.files.items()}
        pool = ThreadPoolExecutor(AT_ONCE, "fetch")
        futures: list[Future[None]] = []
        try:
            small_first = sorted(self._plan.blobs.items(), key=lambda pair: pair[1])
            futures = [pool.submit(self._file, names[blob], blob, size, locks) for blob, size in small_first]
            self._watch(futures, report)
        finally:  # a thread that waits for the network ends with the process
            self._stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            if self._plan.here(self._repository) == 0:
                wait(futures, SETTLING)
                self._leave_no_trace()
        return self._link()

    def _leave_no_trace(self) -> None:
        """Of a download that was refused before its first byte."""
        cache.plan_file(self._repository, self._plan.commit).unlink(missing_ok=True)
        for blob in self._plan.blobs:
            cache.part_of(self._repository / "blobs" / blob).unlink(missing_ok=True)
        for folder in (self._repository / cache.PLANS, self._repository / "blobs", self._repository):
            with suppress(OSError):  # other revisions are there
                folder.rmdir()

    def _watch(self, futures: list[Future[None]], report: Report) -> None:
        waiting = set(futures)
        while waiting:
            done, waiting = wait(waiting, BEAT, FIRST_EXCEPTION)
            report(LoadProgress(self._stage, sum(self._here.values()), self._plan.size))
            for future in done:
                future.result()

    def _file(self, name: str, blob: str, size: int, locks: Path) -> None:
        path = self._repository / "blobs" / blob
        if self._stop.is_set() or (path.exists() and path.stat().st_size == size):
            return
        with WeakFileLock(locks / f"{blob}.lock"):  # as the client's: who fetches it too comes after us
            if path.exists() and path.stat().st_size == size:
                self._here[blob] = size
                return
            with open(cache.part_of(path), "ab") as part:
                self._grow(part, name, blob, size)
            os.replace(cache.part_of(path), path)

    def _grow(self, part: BinaryIO, name: str, blob: str, size: int) -> None:
        """Fetches what is missing; what was there is begun anew if the whole turns out to be something else."""
        resumed = part.tell() > 0
        digest = BlobDigest(blob, size, Path(part.name))
        tries = 0
        while True:
            if digest.length < size:
                before = digest.length
                trouble = self._stream(part, digest, name, blob)
                tries = 0 if digest.length > before else tries + 1
                if digest.length < size:
                    self._pause(trouble, tries)
                    continue
            if digest.length == size and digest.matches():
                return
            part.truncate(0)
            if not resumed:
                raise InvalidInput(
                    f"{self._id}: {name} arrived damaged (its hash is not what the hub promises): download it again"
                )
            resumed, digest = False, BlobDigest(blob, size, None)

    def _stream(self, part: BinaryIO, digest: BlobDigest, name: str, blob: str) -> Unreachable:
        """One request from where the part ends; returns what cut it short, if anything did."""
        headers = {**build_hf_headers(), "Accept-Encoding": "identity"}
        if digest.length:
            headers["Range"] = f"bytes={digest.length}-"
        try:
            with session().stream("GET", address(self._id, self._plan.commit, name), headers=headers) as response:
                if response.status_code >= 400:
                    response.read()
                hf_raise_for_status(response)
                if digest.length and response.status_code == 200:  # the whole: this server knows no ranges
                    part.truncate(0)
                    digest.begin()
                for chunk in response.iter_bytes():
                    if self._stop.is_set():
                        raise _Stopped
                    part.write(chunk)
                    digest.add(chunk)
                    self._here[blob] = digest.length
                    self._stage = "downloading"
        except OSError as error:
            if error.errno is not None:  # the disk's, not the network's
                raise
            return self._trouble(error)
        except Exception as error:
            return self._trouble(error)
        return Unreachable("the connection ended early")

    def _trouble(self, error: Exception) -> Unreachable:
        """The error in words if another try may help; raises it otherwise."""
        told = told_of(error, self._id, self._plan.commit)
        if isinstance(told, Unreachable):
            return told
        raise told or error

    def _pause(self, trouble: Unreachable, tries: int) -> None:
        """Waits before the next try; gives up after as many in vain as there are waits."""
        if tries > len(self._waits):
            raise InvalidInput(
                f"{self._id}: the download broke off: {trouble}; what is here will not be fetched again"
            ) from trouble
        self._stage = f"waiting for the hub, try {tries + 1} of {len(self._waits) + 1}"
        if self._stop.wait(max(self._waits[max(tries, 1) - 1], min(trouble.wait, LONGEST_WAIT))):
            raise _Stopped

    def _link(self) -> Path:
        """The snapshot of whole blobs; the plan goes last."""
        snapshot = self._repository / "snapshots" / self._plan.commit
        for name, (_, blob) in self._plan.files.items():
            pointer, target = snapshot / name, self._repository / "blobs" / blob
            pointer.parent.mkdir(parents=True, exist_ok=True)
            pointer.unlink(missing_ok=True)
            pointer.symlink_to(os.path.relpath(target, pointer.parent))
        if not COMMIT.fullmatch(self._plan.revision):
            ref = self._repository / "refs" / self._plan.revision
            ref.parent.mkdir(parents=True, exist_ok=True)
            ref.write_text(self._plan.commit, encoding="utf-8")
        cache.plan_file(self._repository, self._plan.commit).unlink(missing_ok=True)
        return snapshot
