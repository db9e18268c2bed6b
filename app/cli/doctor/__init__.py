"""`batchscope doctor`, and what it looks at, one a file."""

from app.cli.doctor.command import add
