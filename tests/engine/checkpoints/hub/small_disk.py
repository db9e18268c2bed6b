"""A download in a process that may write no file larger than a limit, as on a disk that fills."""

import resource
from typing import Any

from engine.checkpoints.hub import resumable_download
from engine.jobs.job import Report


def work(arguments: dict[str, Any], report: Report) -> str:
    limit = arguments.pop("limit")
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    return resumable_download.work(arguments, report)
