"""Where the docks of the Play page stand: first of all, and to see inside."""

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QMainWindow, QTabWidget

from app.ui.dock import Dock
from app.ui.layout.boxes import steady
from app.ui.look import theme
from app.ui.look.motion import moving

LAYOUT_VERSION = 2  # of what is kept of it
LEFT, RIGHT = Qt.DockWidgetArea.LeftDockWidgetArea, Qt.DockWidgetArea.RightDockWidgetArea
FOOT = Qt.DockWidgetArea.BottomDockWidgetArea
AREAS = {"setup": LEFT} | dict.fromkeys(("timeline", "step", "requests", "transcript"), FOOT)  # all others at the right
SETUP, LIVE = 264, 316  # pixels of the design
WIDE = 1000  # of the area, from which on four panels stand beside each other
SIDES = 0.67  # of the width, for both sides at most: all tabs are whole at 150 % on 1280 pixels
ACROSS, DOWN = Qt.Orientation.Horizontal, Qt.Orientation.Vertical


def dock_host() -> QMainWindow:
    """What holds the docks; its corners belong to the sides."""
    area = QMainWindow()
    area.setObjectName("play_area")
    area.setWindowFlags(Qt.WindowType.Widget)
    options = QMainWindow.DockOption
    area.setDockOptions(options.AllowNestedDocks | options.AllowTabbedDocks)
    area.setContextMenuPolicy(Qt.ContextMenuPolicy.NoContextMenu)
    area.setTabPosition(Qt.DockWidgetArea.AllDockWidgetAreas, QTabWidget.TabPosition.North)
    for corner in (Qt.Corner.TopLeftCorner, Qt.Corner.BottomLeftCorner):
        area.setCorner(corner, LEFT)
    for corner in (Qt.Corner.TopRightCorner, Qt.Corner.BottomRightCorner):
        area.setCorner(corner, RIGHT)
    return area


class PlayLayout:
    """Arranges docks by name. But for a zoom, all of them must have been added to the area."""

    def __init__(self, area: QMainWindow, docks: dict[str, Dock]) -> None:
        self._area, self._docks, self._zoom = area, docks, theme.zoom()
        self._kept: list[tuple[str, int]] = []  # the columns of a page that is not in front
        self._zoomed_away = False  # meanwhile, if only for a while
        self._gave_way = False  # the step has become a tab, since there was no room for it beside the timeline

    def prompt(self) -> None:
        """To prompt: the timeline at the foot, the map of blocks under the live figures, the rest one tab away."""
        self._gather()
        self._beside("live", "kv_map", DOWN)
        self._behind("kv_map", "memory", "roofline", "machine")
        self._behind("live", "attention", "beams", "experts")
        self._behind("timeline", "step", "requests", "transcript")
        self._size([("setup", SETUP), ("live", LIVE)], ACROSS, SIDES)
        self._size([("timeline", 264)], DOWN, 0.5)
        self._size([("live", 440), ("kv_map", 360)], DOWN)

    def inside(self) -> None:
        """To see inside: the streams in small, and around them what the engine does with them."""
        self._gather()
        wide = self._area.width() >= theme.px(WIDE)
        if wide:
            self._beside("timeline", "step", ACROSS)
        self._beside("kv_map", "memory", DOWN)
        self._behind("kv_map", "attention", "beams", "experts")
        self._behind("memory", "roofline", "machine", "live")
        self._behind("timeline", *(() if wide else ("step",)), "requests", "transcript")
        self._size([("setup", 264), ("kv_map", 480)], ACROSS, 0.55 if wide else SIDES)
        if wide:
            self._size([("timeline", 560), ("step", 420)], ACROSS, 0.45)
        self._size([("timeline", 380)], DOWN, 0.6)
        self._size([("kv_map", 460), ("memory", 360)], DOWN)

    def everything(self) -> None:
        """Every panel that looks inside in sight at once: for the bench, and for very large screens."""
        self.inside()
        self._beside("kv_map", "live", ACROSS)
        self._beside("live", "beams", DOWN)
        self._beside("beams", "experts", DOWN)
        self._beside("memory", "roofline", ACROSS)
        self._beside("roofline", "machine", DOWN)
        self._beside("machine", "attention", DOWN)
        self._size([("setup", 240), ("kv_map", 290), ("live", 290)], ACROSS)
        self._size([("timeline", 480), ("step", 340)], ACROSS)
        self._size([("memory", 290), ("roofline", 290)], ACROSS)
        self._size([("live", 250), ("beams", 230)], DOWN)

    def follow_zoom(self) -> None:
        """The columns at both sides are as wide in pixels of the design as they were, and as at first at least. Where
        another page is in front, once this one is."""
        self._area.setAnimated(moving())
        zoomed = self._zoom != theme.zoom()
        if not self._area.isVisible():
            self._zoomed_away = self._zoomed_away or zoomed
            return
        sides, zoomed = self._kept or self._sides(), zoomed or self._zoomed_away
        self._zoom, self._kept, self._zoomed_away = theme.zoom(), [], False
        if zoomed:
            self._give_way()
        if sides and zoomed:
            self._size(sides, ACROSS, SIDES)

    def _give_way(self) -> None:
        """Zooming takes the room of four panels beside each other, or gives it back: what stands beside the timeline
        becomes a tab of it meanwhile."""
        if "step" not in self._docks:  # the page is on the screen, and not complete yet
            return
        timeline, step = self._docks["timeline"], self._docks["step"]
        tabs, wide = self._area.tabifiedDockWidgets(timeline), self._area.width() >= theme.px(WIDE)
        standing = not (timeline.isHidden() or step.isHidden() or timeline.isFloating() or step.isFloating())
        if standing and self._gave_way and wide and step in tabs:
            steady(self._area)
            for dock in (timeline, step):  # out of the tabs: what is split off a tab becomes another tab
                self._area.addDockWidget(FOOT, dock, ACROSS)
            self._behind("timeline", *(name for name, dock in self._docks.items() if dock in tabs and dock is not step))
            self._size([("timeline", 560), ("step", 420)], ACROSS, 0.45)
            self._gave_way = False
        elif standing and not wide and step not in tabs:
            self._behind("timeline", "step")
            self._gave_way = True

    def rest(self) -> None:
        """Another page comes to the front: what zooming does to the columns meanwhile is not to stay."""
        self._kept = self._sides()

    def _sides(self) -> list[tuple[str, int]]:
        """The columns at both sides, by a dock of each, as wide as they are in pixels of the design."""
        shown = [name for name, dock in self._docks.items() if dock.isVisible() and not dock.isFloating()]
        right = [name for name in shown if AREAS.get(name, RIGHT) is RIGHT][:1]
        first = [("setup", SETUP), *((name, LIVE) for name in right)]
        return [
            (name, max(least, round(self._docks[name].width() / self._zoom))) for name, least in first if name in shown
        ]

    def _gather(self) -> None:
        """Every dock in its area, in sight."""
        steady(self._area)  # they stand where they will not stay
        self._gave_way = False
        for name, dock in self._docks.items():
            dock.setFloating(False)
            self._area.addDockWidget(AREAS.get(name, RIGHT), dock)
            dock.show()

    def _beside(self, name: str, other: str, orientation: Qt.Orientation) -> None:
        self._area.splitDockWidget(self._docks[name], self._docks[other], orientation)

    def _behind(self, name: str, *others: str) -> None:
        """The others as further tabs where the dock is; the dock itself on top."""
        for other in others:
            self._area.tabifyDockWidget(self._docks[name], self._docks[other])
        self._docks[name].raise_()

    def _size(self, sizes: list[tuple[str, int]], orientation: Qt.Orientation, most: float = 1.0) -> None:
        """In pixels of the design; all less where they would be more than `most` of the area, which would grow."""
        docks, left = [self._docks[name] for name, _ in sizes], [theme.px(size) for _, size in sizes]
        room = most * (self._area.width() if orientation is ACROSS else self._area.height())
        given: list[int] = []
        for place, dock in enumerate(docks):  # one that takes more than its share leaves less to those after it
            hint = dock.minimumSizeHint()
            least = hint.width() if orientation is ACROSS else hint.height()
            share = min(1.0, max(0.0, room - sum(given)) / sum(left[place:]))
            given.append(max(round(share * left[place]), least))
        self._area.resizeDocks(docks, given, orientation)
