"""The fleet's panel: a card for each replica with a button that ends it, and where the newest requests went."""

from PySide6.QtCore import QPointF, QRect, QRectF, Qt, Signal
from PySide6.QtGui import QPainter
from PySide6.QtWidgets import QFrame, QWidget

from app.fleet.picture import ReplicaPicture
from app.fleet.state import FleetState, ReplicaState, Routed
from app.language import tr, trn
from app.ui.controls import button
from app.ui.labels import Hairline, Heading, Note, label, set_role
from app.ui.layout.boxes import column, held, panel, row
from app.ui.layout.zoomed import zoomed
from app.ui.line import Line
from app.ui.look import theme
from app.ui.look.font_face import Face
from app.ui.painted import Painted

ROUTES = 7  # lines


class FleetPanel(QWidget):
    """Shows states; `kill_asked` has the place of a replica."""

    kill_asked = Signal(int)

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("fleet_panel")
        self.state: FleetState | None = None
        self.title = label(tr("Fleet"), "title", "fleet_title")
        self.summary = Line("fleet_summary")
        self.notice = Note("fleet_notice", "error")
        self.cards: list[ReplicaCard] = []
        self._row = zoomed(row(), spacing=8)
        self.routes = Routes()
        head = zoomed(row(self.title, (self.summary, 1)), spacing=12)
        asked = panel(zoomed(column(Heading(tr("Where requests went, and why")), self.routes), (12, 10, 12, 12), 6))
        cards = held(self._row)
        self.setLayout(zoomed(column(head, self.notice, (cards, 1), asked), (12, 10, 12, 12), 8))

    def show_state(self, state: FleetState) -> None:
        self.notice.say("")
        self.state = state
        if len(self.cards) != len(state.replicas):
            for card in self.cards:
                self._row.removeWidget(card)
                card.deleteLater()
            self.cards = [ReplicaCard(one.place) for one in state.replicas]
            for card in self.cards:
                card.kill_asked.connect(self.kill_asked)
                self._row.addWidget(card, 1)
        for card, one in zip(self.cards, state.replicas):
            card.show_state(one, state.kills)
        self.routes.show_routes(state.routes[-ROUTES:])
        living = sum(one.alive for one in state.replicas)
        said = [
            state.model,
            tr("{living} of {all} replicas live", living=living, all=len(state.replicas)),
            trn("{count} request open", "{count} requests open", state.open),
        ]
        if state.parked:
            said.append(trn("{count} waits for a replica", "{count} wait for a replica", state.parked))
        if state.deaths:
            said.append(trn("{count} replica died", "{count} replicas died", state.deaths))
        self.summary.say(" · ".join(said))

    def show_fault(self, why: str) -> None:
        """There is no state to be had; what was shown stays."""
        self.notice.say(why)


class ReplicaCard(QFrame):
    """One place."""

    kill_asked = Signal(int)

    def __init__(self, place: int) -> None:
        super().__init__()
        self.setProperty("role", "panel")
        self.setObjectName(f"fleet_replica_{place}")
        self.place = place
        self.name = label(tr("Replica {place}", place=place), "title")
        self.health = label("", "secondary", f"fleet_health_{place}")
        self.words = Line(f"fleet_words_{place}")
        self.picture = ReplicaPicture(place)
        self.kill = button(
            f"fleet_kill_{place}",
            tr("Kill"),
            lambda: self.kill_asked.emit(self.place),
            tip=tr("Ends the replica's engine as a crash would; its requests go on at another one"),
            said=tr("Kill replica {place}", place=place),
        )
        head = zoomed(row(self.name, self.health, None, self.kill), spacing=8)
        self.setLayout(zoomed(column(head, self.words, Hairline(), (self.picture, 1)), (12, 10, 12, 12), 8))

    def show_state(self, state: ReplicaState, kills: bool) -> None:
        alive = state.alive
        words = tr("alive") if alive else tr("being loaded again")
        if words != self.health.text():
            self.health.setText(words)
            set_role(self.health, "secondary" if alive else "warning")
        self.kill.setVisible(kills)
        self.kill.setEnabled(alive)
        self.picture.show_state(state)
        if not alive:
            self.words.say("—")
            return
        used = (state.blocks - state.free_blocks - state.cached_blocks) / max(1, state.blocks)
        said = [
            tr("{running} of {slots} slots", running=state.running, slots=state.slots),
            tr("{count} waiting", count=max(0, state.open - state.running)),
            tr("KV {share:.0%}", share=used),
        ]
        if state.process:
            said.append(tr("process {process}", process=state.process))
        self.words.say(" · ".join(said))


class Routes(Painted):
    """The newest last, a line each."""

    face = Face(12)
    least = hint = (200, 18 * ROUTES)

    def __init__(self) -> None:
        super().__init__("fleet_routes", tr("Where the newest requests went, and why"))
        self.setFixedHeight(theme.px(self.hint[1]))
        self.routes: tuple[Routed, ...] = ()

    def restyle(self) -> None:
        self.setFixedHeight(theme.px(self.hint[1]))
        super().restyle()

    def show_routes(self, routes: tuple[Routed, ...]) -> None:
        if routes != self.routes:
            self.routes = routes
            self.setAccessibleDescription("\n".join(map(route_words, routes)))
            self.update()

    def tip(self, at: QPointF) -> str:
        """A line whole, which may be cut."""
        place = int(at.y() // theme.px(18))
        return route_words(self.routes[place]) if 0 <= place < len(self.routes) else ""

    def paint(self, painter: QPainter, dirty: QRect) -> None:
        if not self.routes:
            self.say_empty(painter, tr("No request has come in yet."))
            return
        colors, line = theme.current(), theme.px(18)
        painter.setFont(self.face.font)
        for i, route in enumerate(self.routes):
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(theme.request_color(route.request))
            painter.drawEllipse(QPointF(theme.px(4), (i + 0.5) * line), theme.px(3), theme.px(3))
            painter.setPen(colors.warn if route.moves else colors.text)
            box = QRectF(theme.px(14), i * line, self.width() - theme.px(14), line)
            words = self.face.metrics.elidedText(route_words(route), Qt.TextElideMode.ElideRight, int(box.width()))
            painter.drawText(box, Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter, words)


def route_words(route: Routed) -> str:
    told = {"time": route.time, "request": route.request, "place": route.place, "why": route.why}
    if route.moves:
        return tr("{time:.1f} s   #{request} ↷ replica {place}: {why}", **told)
    return tr("{time:.1f} s   #{request} → replica {place}: {why}", **told)
