"""The machine: how busy it was over the run, how much memory is held and free, what a GPU draws and how warm it is."""

from collections.abc import Sequence

from app.inside.machine.picture import MachinePicture
from app.inside.machine.readings import MachineReadings
from app.inside.panel import InsightPanel
from app.language import tr
from app.playback.scope import Scope
from app.ui.tables.facts import Facts
from engine.trace import Record

ROWS = 2000  # of the table: the readings up to the cursor


class MachinePanel(InsightPanel):
    """The panel. Readings come about twice a second, whatever the steps do."""

    def __init__(self, scope: Scope) -> None:
        super().__init__(scope, "machine", tr("Machine"))
        self.readings = MachineReadings()
        self.charts = MachinePicture()
        self.charts.sought.connect(scope.seek)
        self.charts.stepped.connect(scope.step_by)
        self.set_picture(self.charts)

    def take(self, records: Sequence[Record]) -> None:
        self.readings.take(records)

    def adopt(self, known: MachineReadings) -> bool:
        self.readings = known
        return True

    def forget(self) -> None:
        self.readings = MachineReadings()

    def draw(self) -> None:
        scope, readings = self.scope, self.readings
        last = float(readings.time[-1]) if len(readings) else 0.0
        until = max(scope.end, last)
        begin, end = (scope.origin + at for at in self.shared) if self.shared is not None else (scope.origin, until)
        self.charts.show_readings(readings, begin, end, until, scope.moment)
        said = []
        for reading in readings.known():
            if reading.field in ("cpu_percent", "gpu_percent", "gpu_watts", "memory"):
                figure = reading.words(readings.value_at(reading, scope.moment))
                said.append(figure if reading.field == "gpu_watts" else f"{reading.title} {figure}")
        self.summary.say(" · ".join(said))

    def facts(self) -> Facts:
        known, readings = self.readings.known(), self.readings
        columns = (tr("time s"), *(f"{reading.title} {reading.unit_title}" for reading in known))
        last = readings.place_at(self.scope.moment) + 1
        first = max(0, last - ROWS)
        values = [readings.values(reading)[first:last].tolist() for reading in known]
        times = (readings.time[first:last] - self.scope.origin).tolist()
        return Facts(columns, list(zip(times, *values)))

    def row_chosen(self, row: int) -> None:
        first = max(0, self.readings.place_at(self.scope.moment) + 1 - ROWS)
        self.scope.seek(float(self.readings.time[first + row]))
