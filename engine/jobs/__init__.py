"""Work in a child process: its progress, its cancelling, its end. No torch."""

from engine.jobs.installed import engine_missing
from engine.jobs.job import JobDied, Report, run_job
from engine.jobs.progress import LoadCancelled, LoadProgress
from engine.jobs.spawn import assume, warm_up
