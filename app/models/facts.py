"""What is known of a model before it is loaded, in words. No Qt."""

from dataclasses import dataclass
from pathlib import Path

from app.models.items import Item, Section, age_words, stored_words
from app.models.reference import short_revision
from app.words import bytes_words, count_words
from engine.checkpoints import HubModel, ModelEntry, ModelInfo, Place, why_unsupported


@dataclass(frozen=True, slots=True)
class Fact:
    """`tip` is its longer wording."""

    name: str
    value: str
    tip: str = ""


def facts(info: ModelInfo, entry: ModelEntry | None, hub: HubModel | None) -> list[Fact]:
    """A model's facts in the order in which people ask for them. `entry` is its place on this machine, `hub` that on
    the hub where it is still to be fetched."""
    why = why_unsupported(info.model_type)
    keys = f"  ·  {info.kv_heads} KV" if info.kv_heads != info.heads else ""
    mixture = f", {info.experts / max(1, info.parameters):.0%} of them in experts" if info.experts else ""
    shape = f"{info.layers} layers, d_model {info.hidden:,}, vocabulary {info.vocabulary:,}"
    sharing = f"{info.heads} query heads share {info.kv_heads} key and value heads, each {info.head_dim} wide"
    context = f"{info.context:,} tokens" if info.context else "not stated"
    window = f"sliding-window layers see {info.window:,} tokens" if info.window else ""
    found = [
        Fact("Architecture", f"{info.architecture} {'✕' if why else '✓'}", why or "paged attention serves it"),
        Fact("Parameters", count_words(info.parameters), f"{info.parameters:,}{mixture}"),
        Fact("Layers", f"{info.layers}  ·  d_model {info.hidden:,}", shape),
        Fact("Heads", f"{info.heads}{keys}  ·  {info.head_dim} wide", sharing),
        Fact("Context", context, window),
        Fact("Chat template", "yes") if info.chat else Fact("Chat template", "none", "prompts go in as they are"),
        Fact("Stored as", stored_words(info), groups_words(info)),
        Fact("Licence", (hub.licence if hub is not None else "") or info.licence or "not stated"),
    ]
    size = hub.size if hub is not None else entry.size if entry is not None else 0
    found.append(Fact("To download" if hub is not None else "On disk", bytes_words(size or info.weight_bytes)))
    if hub is not None and hub.updated:
        found.append(Fact("Updated", age_words(hub.updated)))
    elif entry is not None and entry.place is Place.FOLDER:
        found.append(Fact("Changed", age_words(entry.changed)))
    return found


def groups_words(info: ModelInfo) -> str:
    """What is to be said of a checkpoint's own quantization."""
    held = info.quantized
    if held is None:
        return ""
    shared = "a scale a column" if held.group < 0 else f"{held.group} weights share a scale"
    kept = f"; left as they were: {', '.join(held.kept)}" if held.kept else ""
    return f"{held.method.upper()}, {held.bits} bits a weight, {shared}{kept}"


def place_words(item: Item, info: ModelInfo | None, hub: HubModel | None) -> str:
    """Where it is: a folder, or an id and its revision."""
    revision = short_revision(hub.revision if hub is not None else item.revision)
    if "/" in item.source and not item.source.startswith(("/", "~", ".")):
        return f"{item.source}  ·  {revision}" if revision else item.source
    if item.section is Section.SHIPPED:
        return f"{item.source}  ·  ships with Batchscope" if "/" not in item.source else "ships with Batchscope"
    folder = item.folder or (info.folder if info is not None else None) or Path(item.source)
    home = Path.home()
    return str(Path("~") / folder.relative_to(home) if folder.is_relative_to(home) else folder)


def copied_words(item: Item, info: ModelInfo | None, hub: HubModel | None) -> str:
    """What is copied: what `batchscope --model` takes, with the whole revision."""
    if "/" in item.source and not item.source.startswith(("/", "~", ".")):
        revision = hub.revision if hub is not None else item.revision
        return f"{item.source}@{revision}" if revision else item.source
    if item.section is Section.SHIPPED:
        return item.source
    return str(item.folder or (info.folder if info is not None else None) or item.source)


def gated_words(hub: HubModel) -> str:
    """How access to a gated model is given; "" for one that anyone may fetch."""
    if hub.gated == "manual":
        return "Gated: its owner gives access to those whom they approve."
    return "Gated: whoever accepts its terms has access." if hub.gated else ""
