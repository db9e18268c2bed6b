"""Requests in a database, one row each. Extra `serve`; PostgreSQL needs the extra `postgres`."""

from engine.serving.request_log.reading import last_requests
from engine.serving.request_log.request_log import RequestLog
from engine.serving.request_log.table import columns
