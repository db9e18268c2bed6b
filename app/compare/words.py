"""What people call the engine's measures, and its lanes and orders of a race. No Qt in here."""

from app.language import tr
from app.words import admission_words
from engine import Lane
from engine.compare import RaceResult, lane_sentence, lane_title
from engine.trace import Measure

MEASURES = {  # by key; others are called as the engine calls them
    "completed": tr("completed"),
    "duration": tr("run time"),
    "output_throughput": tr("output throughput"),
    "total_throughput": tr("total throughput"),
    "request_throughput": tr("request throughput"),
    "cost": tr("cost of tokens"),
    "ttft.mean": tr("TTFT mean"),
    "ttfo.mean": tr("TTFO mean"),
    "thought_share": tr("thoughts"),
    "tpot.mean": tr("TPOT mean"),
    "itl.mean": tr("ITL mean"),
    "e2e.mean": tr("E2E latency mean"),
    "e2e.p50": tr("E2E latency p50"),
    "e2e.p95": tr("E2E latency p95"),
    "e2e.p99": tr("E2E latency p99"),
    "longest_stall": tr("longest stall"),
    "average_latency": tr("average latency"),
    "steps": tr("steps"),
    "mean_rows": tr("rows a step"),
    "wasted_row_share": tr("wasted row-steps"),
    "idle_share": tr("idle slot-steps"),
    "padding_share": tr("padding"),
    "useful_share": tr("useful tokens"),
    "wasted_tokens": tr("wasted tokens"),
    "reused_tokens": tr("reused tokens"),
    "offloaded_tokens": tr("tokens from the host"),
    "acceptance_rate": tr("acceptance rate"),
    "accepted_length": tr("accepted length"),
    "draft_speedup": tr("speed-up by drafts"),
    "activated_experts": tr("activated experts"),
    "expert_imbalance": tr("expert imbalance"),
    "preemptions": tr("preemptions"),
    "swapped_blocks": tr("host copies"),
    "swap_time": tr("host copying"),
    "outside_forward": tr("outside the forward"),
    "kv.waste": tr("KV waste"),
    "kv.used": tr("KV used"),
    "kv.reserved": tr("KV reserved"),
    "kv.internal": tr("KV internal"),
    "kv.external": tr("KV external"),
}
TITLES = {  # of lanes without a name, by mode
    "recompute": tr("One at a time, no cache"),
    "sequential": tr("One at a time"),
    "static": tr("Static batch of {size}"),
    "dynamic": tr("Dynamic batch of {size}"),
    "continuous-padded": tr("Continuous, padded"),
    "continuous": tr("Continuous, paged"),
    "chunked": tr("Chunked prefill, paged"),
    "disaggregated": tr("Disaggregated prefill, paged"),
}
SENTENCES = {
    "recompute": tr("every token computes the whole text again"),
    "sequential": tr("each request waits for the one before it"),
    "static": tr("finished rows wait for the longest"),
    "dynamic": tr("a batch starts when it is full or has waited long enough; finished rows wait for the longest"),
    "continuous-padded": tr("requests join and leave at every step; all are padded to the longest"),
    "continuous": tr("requests join and leave at every step"),
    "chunked": tr("requests join and leave at every step; long prompts share steps with the decodes"),
    "disaggregated": tr("one process computes prompts, another decodes; neither waits for the other's work"),
}
ORDERS = {  # of a race: its title, and what it is
    "as listed": (tr("as listed"), tr("The lanes in their order, in every repeat.")),
    "rotated": (tr("rotated"), tr("Each repeat begins with the next lane, so that no lane is always first.")),
    "shuffled": (tr("shuffled"), tr("A new order in every repeat, fixed by the seed.")),
}


def measure_title(measure: Measure) -> str:
    return MEASURES.get(measure.key, measure.name)


def title_of(lane: Lane) -> str:
    """A heading: "Static batch of 8", or the lane's own name."""
    if lane.server is not None and not lane.name:
        return tr("Server {place}", place=lane.server.place)
    if not lane.name and lane.config.mode in TITLES:
        title, split = TITLES[lane.config.mode].format(size=lane.config.max_running), lane.spec.parallel
        if lane.config.admission != "fcfs":
            title = f"{title}, {admission_words(lane.config.admission)}"
        if not lane.config.mixed_adapters:
            title = tr("{title}, one adapter at a time", title=title)
        if split.pipeline > 1:
            return tr("{title}, in {count} stages", title=title, count=split.pipeline)
        if split.sequence:
            return tr("{title}, on {count} ranks that share rows", title=title, count=split.tensor)
        if split.experts:
            return tr("{title}, experts whole on {count} ranks", title=title, count=split.tensor)
        if split.tensor > 1:
            return tr("{title}, on {count} ranks", title=title, count=split.tensor)
        match lane.spec.kv_heads:
            case "auto":
                return title
            case "all":
                return tr("{title}, multi-head attention", title=title)
        return tr("{title}, {count} KV heads", title=title, count=lane.spec.kv_heads)
    return lane_title(lane)


def disturbance_words(result: RaceResult, lane: int) -> str:
    """What of a lane's figures is not to be trusted; "" where all is."""
    runs, played = result.disturbed(lane), len(result.traces(lane))
    if not runs:
        return ""
    shares = sorted({round(100 * (run.others or 0.0)) for run in runs})
    share = "–".join(map(str, dict.fromkeys((shares[0], shares[-1]))))
    if played == 1:
        return tr("other programs used {share} % of the CPU during this lane", share=share)
    if len(runs) == played:
        return tr("other programs used {share} % of the CPU during each of its {all} runs", share=share, all=played)
    return tr(
        "other programs used {share} % of the CPU during {n} of its {all} runs", share=share, n=len(runs), all=played
    )


def sentence_of(lane: Lane) -> str:
    """What its mode does, to stand beside the heading."""
    if lane.server is not None:
        return tr("a server, as its clients see it; how it batches is not known")
    return SENTENCES.get(lane.config.mode) or lane_sentence(lane)
