"""How models, runs, requests and their numbers are put into words: the same in the window and on the command line.

No Qt in here."""

from pathlib import Path
from time import gmtime, strftime

from engine.config import SCHEMES
from engine.jobs import engine_missing
from engine.trace import FinishReason, Header, ModelCard, RequestView, State
from engine.trace import bytes_text as bytes_words
from engine.trace import parameters_text as count_words

SHIPPED = {"demo": "demo stories", "demo-draft": "demo draft"}


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


def kv_words(kv_dtype: str, token_bytes: int) -> str:
    """ "KV 12 KB a token", "KV int8, 3.2 KB a token"; the dtype "auto" or "" is the model's."""
    return f"KV {'' if kv_dtype in ('', 'auto') else f'{kv_dtype}, '}{bytes_words(token_bytes)} a token"


def run_words(header: Header) -> str:
    """ "demo stories 5 M · float32 · CPU, 2 cores · continuous, paged"."""
    card, machine = header.model, header.machine
    if card.device.startswith("cuda"):
        where = machine.gpu or "GPU"
    else:
        where = f"CPU, {machine.cores} core{'s' if machine.cores != 1 else ''}"
    cache = "paged" if header.config.mode in ("continuous", "chunked") else "contiguous"
    cache += f", KV {card.kv_dtype}" if card.kv_dtype else ""
    name = f"{model_words(card.source)} {count_words(card.parameters)}"
    return "   ·   ".join((name, held_words(card), where, f"{header.config.mode}, {cache}"))


def back_words() -> str:
    """What follows a saved run."""
    return "Close the run" if engine_missing() else "Back to the engine"


def recorded_words(header: Header) -> str:
    """ "recorded 2026-11-23 on AMD EPYC 7B13"."""
    day = strftime("%Y-%m-%d", gmtime(header.created))
    return f"recorded {day} on {header.machine.gpu or header.machine.cpu}"


def sentence(text: str) -> str:
    """A message with a capital at its beginning, unless it begins with the name of a value or a path."""
    first = text.split(" ", 1)[0]
    return text[:1].upper() + text[1:] if first.replace("'", "").isalpha() else text


def state_words(view: RequestView) -> str:
    """The state in honest words: "queued", "prefill 96/412", "finished · stop", "error"."""
    match view.state:
        case State.PREFILL:
            return f"prefill {view.computed:,}/{len(view.prompt_ids) + len(view.tokens):,}"
        case State.FINISHED if view.reason is FinishReason.ERROR:
            return "error"
        case State.FINISHED if view.reason is FinishReason.CANCELLED:
            return "cancelled"
        case State.FINISHED if view.reason is not None:
            return f"finished · {view.reason.value}"
        case _:
            return view.state.value


def state_rank(view: RequestView) -> int:
    """The order in which states sort: running first, then waiting, then over."""
    order = (State.DECODE, State.PREFILL, State.SWAPPED, State.PREEMPTED, State.WAITING, State.FINISHED)
    return order.index(view.state)


def asked_words(view: RequestView) -> str:
    """What was asked: its last user turn, on one line."""
    asked = next((m["content"] for m in reversed(view.messages) if m.get("role") == "user"), view.prompt)
    return " ".join(asked.split())


def request_title(view: RequestView) -> str:
    """What a person would call this request: its label, else what was asked."""
    return " ".join(view.label.split()) or asked_words(view)


def duration(seconds: float) -> str:
    """Seconds in the unit that needs the fewest digits: "8.5 ms", "148 ms", "3.14 s", "2 min 05 s"."""
    if seconds < 0.00995:
        return f"{seconds * 1e3:.1f} ms"
    if seconds < 0.9995:
        return f"{seconds * 1e3:.0f} ms"
    if seconds < 9.995:
        return f"{seconds:.2f} s"
    if seconds < 99.95:
        return f"{seconds:.1f} s"
    return f"{int(seconds) // 60:,} min {int(seconds) % 60:02d} s"


def number(value: float) -> str:
    """A rate or count: "4.2" below ten, else whole, with thousands apart."""
    return f"{value:.1f}" if 0 < value < 9.95 else f"{value:,.0f}"


def request_tooltip(view: RequestView) -> str:
    """The prompt and the numbers of a card, each with its formula."""
    lines = [
        request_title(view)[:300],
        f"{len(view.prompt_ids):,} tokens in, {len(view.tokens):,} of {view.params.max_tokens:,} out",
    ]
    if view.ttft is not None:
        lines.append(f"TTFT {duration(view.ttft)} = first token − submit")
    if view.samples[0].score is not None:
        lines.append(
            f"{view.params.beam_width} beams, best score {view.samples[0].score:.4f} = Σ log p ÷ length^penalty"
        )
    rate = view.tokens_per_second
    if rate is not None:
        lines.append(f"{number(rate)} tok/s = (tokens − 1) ÷ (last − first token)")
    return "\n".join(lines)


def graph_words(graph: int, rows: int, tokens: int = 0) -> str:
    """ "replayed a graph of 64 rows (3 dummies)"; of a step with prompts, which has so many `tokens`, "replayed a graph
    of 128 tokens (5 of padding)"; empty where none was."""
    if tokens:
        spare, words = graph - tokens, "of padding"
    else:
        spare, words = graph - rows, "dummy" if graph - rows == 1 else "dummies"
    filled = f" ({spare:,} {words})" if spare > 0 else ""
    return f"replayed a graph of {counted(graph, 'token' if tokens else 'row')}{filled}" if graph else ""


def counted(count: int, noun: str) -> str:
    """ "1 row", "28 rows"."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
