"""How models, runs, requests and their numbers are put into words: the same in the window and on the command line.

No Qt in here."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from time import gmtime, strftime

from app.language import digits, tr, trn
from engine.config import SCHEMES
from engine.jobs import engine_missing
from engine.trace import FinishReason, Header, ModelCard, RequestView, State
from engine.trace import bytes_text as bytes_words
from engine.trace import parameters_text as count_words

SHIPPED = {
    "demo": "demo stories",
    "demo-draft": "demo draft",
    "demo-moe": "demo mixture",
    "demo-mla": "demo latents",
    "demo-hybrid": "demo hybrid",
}


def left_words(seconds: float) -> str:
    """Seconds that are left, roughly: "20 s", "3 min"."""
    return f"{max(1, round(seconds))} s" if seconds < 90 else f"{round(seconds / 60)} min"


def model_words(source: str) -> str:
    """A model by the name people know it by: the demo, a folder's name, a hub id."""
    if source in SHIPPED:
        return SHIPPED[source]
    return Path(source).name if source.startswith(("/", "~", ".")) else source


def held_words(card: ModelCard) -> str:
    """How a model's weights are held: "float32", "nf4, bfloat16"."""
    return card.dtype if card.quantization == "none" else f"{SCHEMES[card.quantization].title}, {card.dtype}"


def kv_words(kv_dtype: str, token_bytes: int, state_bytes: int = 0) -> str:
    """ "KV 12 KB a token", "KV int8, 3.2 KB a token"; the dtype "auto" or "" is the model's. Of a model of whose layers
    some keep a state of each request: "KV 4 KB a token, 160 KB a request"."""
    if kv_dtype in ("", "auto"):
        words = tr("KV {size} a token", size=bytes_words(token_bytes))
    else:
        words = tr("KV {dtype}, {size} a token", dtype=kv_dtype, size=bytes_words(token_bytes))
    return tr("{kv}, {size} a request", kv=words, size=bytes_words(state_bytes)) if state_bytes else words


def admission_words(admission: str) -> str:
    """Who of those that wait is next."""
    match admission:
        case "fcfs":
            return tr("first come, first served")
        case "sjf":
            return tr("shortest job first")
        case "lpm":
            return tr("longest cached prefix first")
        case "priority":
            return tr("by priority")
        case "fair":
            return tr("fair shares: the label that was served the fewest tokens first")
    raise AssertionError(admission)


def run_words(header: Header) -> str:
    """ "demo stories 5 M · float32 · CPU, 2 cores · continuous, paged"."""
    card, machine = header.model, header.machine
    if card.device.startswith("cuda"):
        where = machine.gpu or "GPU"
    else:
        where = trn("CPU, {count} core", "CPU, {count} cores", machine.cores)
    cache = tr("paged") if header.config.paged else tr("contiguous")
    cache += f", KV {card.kv_dtype}" if card.kv_dtype else ""
    cache += f", {admission_words(header.config.admission)}" if header.config.admission != "fcfs" else ""
    name = f"{model_words(card.source)} {count_words(card.parameters)}"
    heads = f"{card.kv_heads} {tr('KV heads')}" if card.kv_heads_stored else ""
    return "   ·   ".join(filter(None, (name, held_words(card), where, f"{header.config.mode}, {cache}", heads)))


def back_words() -> str:
    """What follows a saved run."""
    return tr("Close the run") if engine_missing() else tr("Back to the engine")


def recorded_words(header: Header) -> str:
    """ "recorded 2026-11-23 on AMD EPYC 7B13"."""
    day = strftime("%Y-%m-%d", gmtime(header.created))
    return tr("recorded {day} on {machine}", day=day, machine=header.machine.gpu or header.machine.cpu)


def sentence(text: str) -> str:
    """A message with a capital at its beginning, unless it begins with the name of a value or a path."""
    first = text.split(" ", 1)[0]
    return text[:1].upper() + text[1:] if first.replace("'", "").isalpha() else text


def state_words(view: RequestView) -> str:
    """The state in honest words: "queued", "prefill 96/412", "finished · stop", "error"."""
    match view.state:
        case State.PREFILL:
            total = len(view.prompt_ids) + len(view.tokens)
            return tr("prefill {done:,}/{total:,}", done=view.computed, total=total)
        case State.FINISHED if view.reason is FinishReason.ERROR:
            return tr("error")
        case State.FINISHED if view.reason is FinishReason.CANCELLED:
            return tr("cancelled")
        case State.FINISHED if view.reason is FinishReason.STOP:
            return tr("finished · stop")
        case State.FINISHED if view.reason is FinishReason.LENGTH:
            return tr("finished · length")
        case State.FINISHED:
            return tr("finished")
        case State.WAITING:
            return tr("queued")
        case State.DECODE if view.thinks:
            return tr("thinking")
        case State.DECODE:
            return tr("decoding")
        case State.PREEMPTED:
            return tr("preempted")
        case State.SWAPPED:
            return tr("swapped out")


def state_rank(view: RequestView) -> int:
    """The order in which states sort: running first, then waiting, then over."""
    order = (State.DECODE, State.PREFILL, State.SWAPPED, State.PREEMPTED, State.WAITING, State.FINISHED)
    return order.index(view.state)


def asked_words(view: RequestView) -> str:
    """What was asked: its last user turn, on one line."""
    asked = next((m["content"] for m in reversed(view.messages) if m.get("role") == "user"), view.prompt)
    return " ".join(asked.split())


def adapters_words(names: Sequence[str]) -> str:
    """ "3 adapters: pirate, german, verse"."""
    return trn("{count:,} adapter: {names}", "{count:,} adapters: {names}", len(names), names=", ".join(names))


def whose_words(view: RequestView) -> str:
    """Its label, and the adapter that it goes through where that is not its label too."""
    named, adapter = " ".join(view.label.split()), view.params.adapter
    return " · ".join(filter(None, (named, adapter if adapter != named else "")))


def request_title(view: RequestView) -> str:
    """What a person would call this request: its label, else what was asked."""
    return " ".join(view.label.split()) or asked_words(view)


def duration(seconds: float) -> str:
    """Seconds in the unit that needs the fewest digits: "12 µs", "8.5 ms", "148 ms", "3.14 s", "2 min 05 s"."""
    if 0 < seconds < 0.000095:
        return f"{seconds * 1e6:.2g} µs"
    if seconds < 0.00995:
        return f"{seconds * 1e3:.1f} ms"
    if seconds < 0.9995:
        return f"{seconds * 1e3:.0f} ms"
    if seconds < 9.995:
        return f"{seconds:.2f} s"
    if seconds < 99.95:
        return f"{seconds:.1f} s"
    return digits(f"{int(seconds) // 60:,} min {int(seconds) % 60:02d} s")


def number(value: float) -> str:
    """A rate or count: "4.2" below ten, else whole, with thousands apart."""
    return f"{value:.1f}" if 0 < value < 9.95 else digits(f"{value:,.0f}")


def request_tooltip(view: RequestView) -> str:
    """The prompt and the numbers of a card, each with its formula."""
    tokens_in, out, most = len(view.prompt_ids), len(view.tokens), view.params.max_tokens
    lines = [
        request_title(view)[:300],
        tr("{tokens_in:,} tokens in, {out:,} of {most:,} out", tokens_in=tokens_in, out=out, most=most),
    ]
    if view.params.adapter:
        lines.append(tr("through the adapter {name}", name=view.params.adapter))
    if view.ttft is not None:
        lines.append(tr("TTFT {time} = first token − submit", time=duration(view.ttft)))
    if thought := view.thoughts[0]:
        lines.append(trn("{count:,} token of thoughts", "{count:,} tokens of thoughts", thought))
        if view.ttfo is not None:
            lines.append(tr("TTFO {time} = first token of the answer − submit", time=duration(view.ttfo)))
    if view.samples[0].score is not None:
        beams, score = view.params.beam_width, view.samples[0].score
        lines.append(tr("{beams} beams, best score {score:.4f} = Σ log p ÷ length^penalty", beams=beams, score=score))
    rate = view.tokens_per_second
    if rate is not None:
        lines.append(tr("{rate} tok/s = (tokens − 1) ÷ (last − first token)", rate=number(rate)))
    return "\n".join(lines)


def graph_words(graph: int, rows: int, tokens: int = 0) -> str:
    """ "replayed a graph of 64 rows (3 dummies)"; of a step with prompts, which has so many `tokens`, "replayed a graph
    of 128 tokens (5 of padding)"; empty where none was."""
    spare = graph - (tokens or rows)
    if not graph:
        return ""
    if tokens and spare > 0:
        return tr("replayed a graph of {tokens:,} tokens ({spare:,} of padding)", tokens=graph, spare=spare)
    if tokens:
        return trn("replayed a graph of {count:,} token", "replayed a graph of {count:,} tokens", graph)
    if spare > 0:
        return trn(
            "replayed a graph of {rows:,} rows ({count:,} dummy)",
            "replayed a graph of {rows:,} rows ({count:,} dummies)",
            spare,
            rows=graph,
        )
    return trn("replayed a graph of {count:,} row", "replayed a graph of {count:,} rows", graph)


def mode_words(mode: str) -> str:
    """What a batching mode does, as the engine says it."""
    match mode:
        case "recompute":
            return tr("no KV cache: one request at a time, its whole sequence computed again for every token")
        case "sequential":
            return tr("one request at a time over a contiguous KV cache")
        case "static":
            return tr("N requests join together and leave together; rows that are done wait for the longest")
        case "dynamic":
            return tr("as static, but a batch also starts when its first request has waited long enough")
        case "continuous-padded":
            return tr("requests join and leave at every step; one contiguous cache, padded to the longest")
        case "continuous":
            return tr("paged KV cache; requests join and leave at every step; prefill and decode in separate steps")
        case "chunked":
            return tr("paged KV cache; decodes and chunks of prompts share the token budget of one step")
        case "disaggregated":
            return tr("paged KV cache; one process computes prompts while another decodes, over the same blocks")
    raise KeyError(mode)


def export_words(what: str) -> str:
    """What the window calls a kind of file that a run is written as: one of the engine's kinds of export."""
    return {
        "report": tr("report"),
        "perfetto": tr("trace for Perfetto"),
        "requests": tr("table of requests"),
        "steps": tr("table of steps"),
        "metrics": tr("table of measures"),
        "prompts": tr("prompts, to send them again"),
    }[what]


def unlike_words(names: Iterable[str]) -> str:
    """What several runs do not have in common, by the engine's names: "prompts and machine"."""
    known = {
        "prompts": tr("prompts"),
        "model": tr("model"),
        "quantization": tr("quantization"),
        "machine": tr("machine"),
    }
    return tr(" and ").join(known[name] for name in names)


def counted(count: int, noun: str) -> str:
    """ "1 row", "28 rows"."""
    return digits(f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s")


def rank_title(rank: int, apart: bool = False) -> str:
    """ "rank 1" of a split model; `apart`: the ranks are who decodes and its prefill worker."""
    if apart:
        return tr("prefill") if rank else tr("decode")
    return tr("rank {number}", number=rank)


def way_words(way: str) -> str:
    """What ranks exchange through, for people: NVLink and PCIe are called so everywhere."""
    return {"shared memory": tr("shared memory"), "loopback": tr("loopback")}.get(way, way)
