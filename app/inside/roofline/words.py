"""The bottleneck in words: which limit binds a step, how far from it the step is, and the formulas behind."""

from app.inside.roofline.points import OUTSIDE, Bound, Point
from app.language import tr, trn
from app.words import bytes_words, duration

FORMULAS = tr(
    "Across: operations per byte = operations ÷ bytes of a step. Up: operations a second of its forward.\n"
    "P weights multiply each of n tokens, H weights of the head the s that are sampled from; row i's tokens attend to "
    "a positions in each layer.\n"
    "operations = 2·P·n + 2·H·s + Σ 4·heads·head_dim·a\n"
    "bytes = weights read once a step + embedding rows + K and V: of each row's context read, of its tokens written\n"
    "roof = min(matrix products a second, operations per byte × copy bandwidth at the step's bytes)\n"
    "Both were measured on this machine at load. Activations between layers are not counted."
)

_BINDS = {
    Bound.MEMORY: tr("memory-bound"),
    Bound.COMPUTE: tr("compute-bound"),
    Bound.COMMUNICATION: tr("communication-bound"),
}
_NEITHER = {Bound.OUTSIDE: tr("outside the model"), Bound.OVERHEAD: tr("overhead"), Bound.UNKNOWN: tr("unknown")}
KIND_TITLES = {"prefill": tr("prefill"), "decode": tr("decode"), "mixed": tr("mixed")}
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
    tokens = trn("{count:,} token", "{count:,} tokens", point.tokens)
    match point.bound:
        case Bound.MEMORY:
            return tr("Memory-bound: each weight is read for {tokens}", tokens=tokens)
        case Bound.COMPUTE:
            return tr("Compute-bound: each weight is used for {tokens}", tokens=tokens)
        case Bound.COMMUNICATION:
            sent = bytes_words(point.sent)
            return tr("Communication-bound: each rank sends {bytes} for {tokens}", bytes=sent, tokens=tokens)
        case Bound.OUTSIDE | Bound.OVERHEAD if point.limit == point.ceiling:
            return tr("Under the ranks' exchange: each weight is read for {tokens}", tokens=tokens)
        case Bound.OUTSIDE | Bound.OVERHEAD if point.limit == point.rate:
            return tr("On compute's side of the roof: each weight is read for {tokens}", tokens=tokens)
        case Bound.OUTSIDE | Bound.OVERHEAD:
            return tr("On memory's side of the roof: each weight is read for {tokens}", tokens=tokens)
        case _:
            each = amount(point.intensity)
            return tr("{n} operations per byte: each weight is read for {tokens}", n=each, tokens=tokens)


def detail(point: Point) -> str:
    """How far the step is from its roof, and where its time goes."""
    if point.bound is Bound.UNKNOWN:
        return tr("This run has no measured roof, so which limit binds is not known")
    inside, outside = _of_roof(point), percent(point.outside)
    match point.bound:
        case Bound.OUTSIDE:
            return tr(
                "Neither limit binds here: {outside} of the step is outside the model. The forward alone is at "
                "{inside}",
                outside=outside,
                inside=inside,
            )
        case Bound.OVERHEAD if point.waiting > OUTSIDE:
            return tr(
                "Neither limit binds here, at {share} of the roof: ranks wait for each other {waiting} of their time",
                share=percent(point.share),
                waiting=percent(point.waiting),
            )
        case Bound.OVERHEAD:
            return tr(
                "Neither limit binds here, at {share} of the roof: many small operations cost more than reading each "
                "weight for {tokens} and multiplying with it",
                share=percent(point.share),
                tokens=trn("{count:,} token", "{count:,} tokens", point.tokens),
            )
        case _:
            return tr("{inside} · {outside} of the step is outside the model", inside=inside, outside=outside)


def _of_roof(point: Point) -> str:
    """How far from it the step is, and which of its parts that is."""
    share, flat = percent(point.share), point.limit == point.rate
    if point.limit == point.ceiling:
        return tr("{share} of what the exchange between ranks allows", share=share)
    if point.share > BEYOND and flat:
        return tr("{share} of the roof: more than the matrix products' rate that was measured at load", share=share)
    if point.share > BEYOND:
        return tr("{share} of the roof: more than the bandwidth that was measured at load", share=share)
    if flat:
        return tr("{share} of the roof, which is the matrix products' rate", share=share)
    return tr("{share} of the roof, which is the bandwidth", share=share)


def summary(point: Point) -> str:
    """The panel's one line."""
    if point.bound is Bound.UNKNOWN:
        return tr("{n} operations per byte · no measured roof", n=amount(point.intensity))
    binds = (_BINDS | _NEITHER)[point.bound]
    return tr("{limit} · {share} of the roof", limit=binds, share=percent(point.share))


def point_words(point: Point, origin: float) -> str:
    """A step in the tooltip of its point."""
    lines = [
        tr(
            "step {step:,} · {kind} · {tokens:,} tokens in {rows:,} rows · at {time}",
            step=point.step,
            kind=KIND_TITLES[point.kind],
            tokens=point.tokens,
            rows=point.rows,
            time=duration(max(0.0, point.ended - origin)),
        ),
        tr(
            "{operations} operations ÷ {bytes} = {intensity} per byte",
            operations=amount(point.operations),
            bytes=bytes_words(point.bytes),
            intensity=amount(point.intensity),
        ),
        tr("{rate} in {time} of the forward", rate=rate_words(point.achieved), time=duration(point.seconds)),
    ]
    if point.limit:
        share, roof = percent(point.share), rate_words(point.limit)
        of_roof = tr("{share} of {rate}, the roof", share=share, rate=roof)
        lines.append(f"{of_roof} · {bound_words(point)}")
    return "\n".join(lines)


def bound_words(point: Point) -> str:
    if not point.limit:
        return tr("no roof")
    return _BINDS.get(point.bound) or tr("neither: {what}", what=_NEITHER[point.bound])
