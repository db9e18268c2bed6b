"""Many runs side by side: lanes, races, sweeps, their table, and whether they agree."""

from engine.compare.comparison import Comparison, MeasureCell, MeasureRow, compare, compare_race, table
from engine.compare.host import EngineHost, LocalHost
from engine.compare.lane import Lane, lane_sentence, lane_title
from engine.compare.lane_grammar import LANE_GRAMMAR, lane_name, lane_names, lane_text, parse_lane, parse_lanes
from engine.compare.lane_run import LaneEvent, LaneFailed, LaneFinished, LaneLoading, LaneRun, LaneStarted
from engine.compare.race import RACE_ORDERS, Race, RaceEvent, RaceFinished, RaceResult
from engine.compare.race_file import RACE_SUFFIX, load_race, save_race
from engine.compare.remote import SERVER_GRAMMAR, Server
from engine.compare.sweep import (
    Recommendation,
    Sweep,
    SweepEvent,
    SweepFinished,
    SweepOutcome,
    SweepPoint,
    SweepResult,
    sizes_up_to,
)
from engine.compare.token_agreement import NEAR_TIE, Agreement, Parting, Verdict, agreement, agreements
