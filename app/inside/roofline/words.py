"""The bottleneck in words: which limit binds a step, how far from it the step is, and the formulas behind."""

from app.inside.roofline.points import Bound, Point
from app.words import bytes_words, counted, duration

FORMULAS = (
    "Across: operations per byte = operations ÷ bytes of a step. Up: operations a second of its forward.\n"
    "P weights multiply each of n tokens, H weights of the head the s that are sampled from; row i's tokens attend to "
    "a positions in each layer.\n"
    "operations = 2·P·n + 2·H·s + Σ 4·heads·head_dim·a\n"
    "bytes = weights read once a step + embedding rows + K and V: of each row's context read, of its tokens written\n"
    "roof = min(matrix products a second, operations per byte × copy bandwidth at the step's bytes)\n"
    "Both were measured on this machine at load. Activations between layers are not counted."
)

_BINDS = {Bound.MEMORY: "memory-bound", Bound.COMPUTE: "compute-bound"}
BEYOND = 1.05  # of the roof: the machine was busy when it was measured


def amount(value: float) -> str:
    """A count in three figures: "12.4 M", "230 G"."""
    for unit in ("", "k", "M", "G", "T", "P"):
        if value < 999.5 or unit == "P":
            break
        value /= 1000
    digits = f"{value:.3g}" if value >= 0.01 or not value else f"{value:.1e}"
    return f"{digits} {unit}".strip()


def rate_words(value: float) -> str:
    """Operations a second: "230 GFLOP/s"."""
    number, _, unit = amount(value).partition(" ")
    return f"{number} {unit}FLOP/s"


def percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.0995 else f"{100 * share:.2g} %"


def headline(point: Point) -> str:
    """Which limit binds: "memory-bound: each weight is read for 3 tokens"."""
    tokens = counted(point.tokens, "token")
    match point.bound:
        case Bound.MEMORY:
            return f"Memory-bound: each weight is read for {tokens}"
        case Bound.COMPUTE:
            return f"Compute-bound: each weight is used for {tokens}"
        case Bound.OUTSIDE | Bound.OVERHEAD:
            return f"{_side(point)}: each weight is read for {tokens}"
        case _:
            return f"{amount(point.intensity)} operations per byte: each weight is read for {tokens}"


def _side(point: Point) -> str:
    """Under which part of the roof a step stands that neither binds."""
    return "On compute's side of the roof" if point.limit == point.rate else "On memory's side of the roof"


def detail(point: Point) -> str:
    """How far the step is from its roof, and where its time goes."""
    if point.bound is Bound.UNKNOWN:
        return "This run has no measured roof, so which limit binds is not known"
    nearest = "the matrix products' rate" if point.limit == point.rate else "the bandwidth"
    inside = f"{percent(point.share)} of the roof, which is {nearest}"
    if point.share > BEYOND:
        inside = f"{percent(point.share)} of the roof: more than {nearest} that was measured at load"
    match point.bound:
        case Bound.OUTSIDE:
            outside = f"{percent(point.outside)} of the step is outside the model"
            return f"Neither limit binds here: {outside}. The forward alone is at {inside}"
        case Bound.OVERHEAD:
            tokens = counted(point.tokens, "token")
            why = f"many small operations cost more than reading each weight for {tokens} and multiplying with it"
            return f"Neither limit binds here, at {percent(point.share)} of the roof: {why}"
        case _:
            return f"{inside} · {percent(point.outside)} of the step is outside the model"


def summary(point: Point) -> str:
    """The panel's one line."""
    if point.bound is Bound.UNKNOWN:
        return f"{amount(point.intensity)} operations per byte · no measured roof"
    return f"{_BINDS.get(point.bound, point.bound)} · {percent(point.share)} of the roof"


def point_words(point: Point, origin: float) -> str:
    """A step in the tooltip of its point."""
    lines = [
        f"step {point.step:,} · {point.kind} · {point.tokens:,} tokens in {point.rows:,} rows"
        f" · at {duration(max(0.0, point.ended - origin))}",
        f"{amount(point.operations)} operations ÷ {bytes_words(point.bytes)} = {amount(point.intensity)} per byte",
        f"{rate_words(point.achieved)} in {duration(point.seconds)} of the forward",
    ]
    if point.limit:
        lines.append(f"{percent(point.share)} of {rate_words(point.limit)}, the roof · {bound_words(point)}")
    return "\n".join(lines)


def bound_words(point: Point) -> str:
    return _BINDS.get(point.bound, f"neither: {point.bound}") if point.limit else "no roof"
