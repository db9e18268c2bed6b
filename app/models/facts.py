"""What is known of a model before it is loaded, in words. No Qt."""

from dataclasses import dataclass
from pathlib import Path

from app.language import digits, tr
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
    shape = tr(
        "{layers} layers, d_model {hidden:,}, vocabulary {vocabulary:,}",
        layers=info.layers,
        hidden=info.hidden,
        vocabulary=info.vocabulary,
    )
    sharing = tr(
        "{heads} query heads share {kv} key and value heads, each {dim} wide",
        heads=info.heads,
        kv=info.kv_heads,
        dim=info.head_dim,
    )
    context = tr("{tokens:,} tokens", tokens=info.context) if info.context else tr("not stated")
    window = tr("sliding-window layers see {tokens:,} tokens", tokens=info.window) if info.window else ""
    chat, as_it_is = tr("Chat template"), tr("prompts go in as they are")
    found = [
        Fact(tr("Architecture"), f"{info.architecture} {'✕' if why else '✓'}", why or tr("paged attention serves it")),
        Fact(tr("Parameters"), count_words(info.parameters), _mixture_words(info)),
        Fact(tr("Layers"), f"{info.layers}  ·  d_model {info.hidden:,}", shape),
        Fact(tr("Heads"), _heads_words(info), sharing),
        Fact(tr("Context"), context, window),
        Fact(chat, tr("yes")) if info.chat else Fact(chat, tr("none"), as_it_is),
        Fact(tr("Stored as"), stored_words(info), groups_words(info)),
        Fact(tr("Licence"), (hub.licence if hub is not None else "") or info.licence or tr("not stated")),
    ]
    size = hub.size if hub is not None else entry.size if entry is not None else 0
    where = tr("To download") if hub is not None else tr("On disk")
    found.append(Fact(where, bytes_words(size or info.weight_bytes)))
    if hub is not None and hub.updated:
        found.append(Fact(tr("Updated"), age_words(hub.updated)))
    elif entry is not None and entry.place is Place.FOLDER:
        found.append(Fact(tr("Changed"), age_words(entry.changed)))
    return found


def _mixture_words(info: ModelInfo) -> str:
    if not info.experts:
        return digits(f"{info.parameters:,}")
    share = info.experts / max(1, info.parameters)
    return tr("{count:,}, {share:.0%} of them in experts", count=info.parameters, share=share)


def _heads_words(info: ModelInfo) -> str:
    if info.latent:
        return tr("{heads}  ·  one latent of {dim:,}", heads=info.heads, dim=info.head_dim)
    if info.kv_heads == info.heads:
        return tr("{heads}  ·  {dim} wide", heads=info.heads, dim=info.head_dim)
    return tr("{heads}  ·  {kv} KV  ·  {dim} wide", heads=info.heads, kv=info.kv_heads, dim=info.head_dim)


def groups_words(info: ModelInfo) -> str:
    """What is to be said of a checkpoint's own quantization."""
    held = info.quantized
    if held is None:
        return ""
    scales = tr("a scale a column") if held.group < 0 else tr("{weights} weights share a scale", weights=held.group)
    method = held.method.upper()
    words = tr("{method}, {bits} bits a weight, {scales}", method=method, bits=held.bits, scales=scales)
    return tr("{words}; left as they were: {kept}", words=words, kept=", ".join(held.kept)) if held.kept else words


def place_words(item: Item, info: ModelInfo | None, hub: HubModel | None) -> str:
    """Where it is: a folder, or an id and its revision."""
    revision = short_revision(hub.revision if hub is not None else item.revision)
    if "/" in item.source and not item.source.startswith(("/", "~", ".")):
        return f"{item.source}  ·  {revision}" if revision else item.source
    if item.section is Section.SHIPPED:
        ships = tr("ships with Batchscope")
        return f"{item.source}  ·  {ships}" if "/" not in item.source else ships
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
        return tr("Gated: its owner gives access to those whom they approve.")
    return tr("Gated: whoever accepts its terms has access.") if hub.gated else ""
