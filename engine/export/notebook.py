"""What a notebook shows of a trace, and the tables that it works with."""

from __future__ import annotations

import importlib
from typing import Any

from engine.config import InvalidInput
from engine.trace import Trace


class NotebookView:
    """The face that `Trace` shows in a notebook. What draws it is imported when it is asked for."""

    def html(self, trace: Trace) -> str:
        from engine.export.report.glance import glance

        return glance(trace)

    def to_pandas(self, trace: Trace, what: str) -> Any:
        """A DataFrame of requests, steps or metrics. Raises InvalidInput for another table, or without pandas."""
        from engine.export.tables import TABLES

        if what not in TABLES:
            raise InvalidInput(f"to_pandas({what!r}): there are {', '.join(TABLES)}")
        try:
            pandas = importlib.import_module("pandas")
        except ImportError:
            raise InvalidInput("to_pandas makes tables of pandas: pip install 'batchscope[export]'") from None
        return pandas.DataFrame(TABLES[what](trace))


Trace.notebook = NotebookView()  # a trace knows nobody that looks at it
