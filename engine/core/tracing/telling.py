"""What the engine's thread tells its trace, in order: some of it only once the next step computes."""

from collections.abc import Callable

from engine.trace.records import Record
from engine.trace.trace import Trace

Make = Callable[[bool], Record]  # told whether it is made while a step computes


class Telling:
    """Of one trace. Records that are told later are made and appended by `now` or `beside`, at the latest before
    anything else is told. For the engine's thread alone."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._untold: list[Make] = []
        self._error: Exception | None = None

    def __call__(self, record: Record) -> None:
        self.now()
        self._trace.append(record)

    def later(self, make: Make) -> None:
        self._untold.append(make)

    def now(self) -> None:
        """All that was put off. Raises what went wrong `beside` a step, too: that is no fault of the step's."""
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        self._tell(False)

    def beside(self) -> None:
        """All that was put off, while a step computes. Raises nothing."""
        try:
            self._tell(True)
        except Exception as error:
            self._error = error

    def _tell(self, beside: bool) -> None:
        if self._untold:
            untold, self._untold = self._untold, []
            for make in untold:
                self._trace.append(make(beside))
