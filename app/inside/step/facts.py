"""A step as a table: its rows, then its phases, refusals and blocks, with exact numbers. No Qt in here."""

from app.inside.phases import PHASE_TITLES
from app.inside.step.block_accounts import block_words
from app.inside.step.story import WASTE_TITLES, StepRow, StepStory
from app.language import tr
from app.ui.tables.facts import Cell, Facts

TITLES = {
    "part": tr("part"),
    "what": tr("what"),
    "request": tr("request"),
    "sample": tr("sample"),
    "slot": tr("slot"),
    "first": tr("first"),
    "tokens_in": tr("tokens in"),
    "tokens_out": tr("tokens out"),
    "text": tr("text"),
    "probability": tr("probability"),
    "cached_before": tr("cached before"),
    "found_by_prefix": tr("found by prefix"),
    "padding": tr("padding"),
    "wasted": tr("wasted"),
    "why_wasted": tr("why wasted"),
    "positions_attended": tr("positions attended"),
    "seconds": tr("seconds"),
    "blocks": tr("blocks"),
    "note": tr("note"),
}
COLUMNS = tuple(TITLES.values())
REQUEST = list(TITLES).index("request")
TIME, KERNEL, HOST_MEMORY = tr("time"), tr("kernel"), tr("host memory")


def _fact(part: str, what: str, **cells: Cell) -> tuple[Cell, ...]:
    known: dict[str, Cell] = {"part": part, "what": what, **cells}
    assert known.keys() <= TITLES.keys(), known.keys() - TITLES.keys()
    return tuple(map(known.get, TITLES))


def _row(r: StepRow) -> tuple[Cell, ...]:
    whose: dict[str, Cell] = {"request": r.request, "sample": r.branch + 1, "slot": r.slot + 1}
    came: dict[str, Cell] = {"first": r.first, "tokens_in": r.count, "tokens_out": len(r.tokens)}
    if r.tokens:
        came["text"] = "".join(r.texts)
        came["probability"] = r.probabilities[0] if len(r.tokens) == 1 else None
    spent: dict[str, Cell] = {"padding": r.padding, "wasted": r.wasted, "why_wasted": WASTE_TITLES.get(r.waste)}
    found: dict[str, Cell] = {"cached_before": r.cached, "found_by_prefix": r.reused, "positions_attended": r.attended}
    note = tr("seconds: attention, computed")
    return _fact(tr("row"), r.kind_words, **whose, **came, **spent, **found, seconds=r.attention, note=note)


def step_facts(story: StepStory) -> Facts:
    """Every row of the step, then each part of its time, each refusal, preemption and change of blocks. `seconds` of a
    row are its part of attention's, which is computed."""
    times, header = story.times, story.header
    facts = [_row(story.row(at)) for at in range(len(story))]
    facts.append(_fact(TIME, tr("step"), seconds=times.duration, note=tr("from its launch to its end")))
    facts += [_fact(TIME, PHASE_TITLES[name], seconds=seconds) for name, seconds in times.parts.items()]
    facts.append(_fact(TIME, PHASE_TITLES["record"], seconds=times.record, note=tr("after the step's end")))
    facts.append(_fact(TIME, tr("forward: matrix products"), seconds=times.matrices, note=times.origin))
    facts.append(_fact(TIME, tr("forward: attention"), seconds=times.attention, note=times.origin))
    facts += [_fact(KERNEL, line.title, seconds=line.seconds, note=line.bound or None) for line in story.kernels.each]
    if story.step.device:
        facts.append(_fact(TIME, tr("GPU"), seconds=story.step.device, note=tr("by the GPU's own clock")))
    if story.graph_words:
        facts.append(_fact(tr("graph"), story.graph_words, padding=story.spare or None))
    for name, count in story.adapters.items():
        note = tr("tokens that went through it")
        facts.append(_fact(tr("adapter"), name or tr("no adapter"), tokens_in=count, note=note))
    if story.experts_words:
        facts.append(
            _fact(tr("experts"), story.experts_words, note=tr("of all layers, those that any token was sent to"))
        )
    for (request, words), reason in zip(story.refused, story.step.refused_reason):
        note = f"{words.why}; {words.remedy}" if words.remedy else words.why
        facts.append(_fact(tr("refused"), reason, request=request, note=note))
    for request, branch in story.preempted:
        facts.append(_fact(tr("preempted"), tr("preempted"), request=request, sample=branch + 1))
    for way, owners in ((tr("swapped out"), story.swapped_out), (tr("swapped in"), story.swapped_in)):
        for (request, branch), blocks in owners.items():
            facts.append(_fact(HOST_MEMORY, way, request=request, sample=branch + 1, blocks=blocks))
    for (request, branch), blocks in story.found_below.items():
        facts.append(_fact(HOST_MEMORY, tr("prefix back"), request=request, sample=branch + 1, blocks=blocks))
    if story.offloaded:
        facts.append(_fact(HOST_MEMORY, tr("prefixes offloaded"), blocks=story.offloaded))
    if story.step.swapping:
        facts.append(_fact(TIME, tr("prepare: swapping"), seconds=story.step.swapping))
    for a in story.accounts:
        owner: dict[str, Cell] = {"request": a.request, "sample": a.branch + 1} if a.request >= 0 else {}
        note = block_words(a.blocks, None)
        if a.sources:
            note = ", ".join(f"{one} → {other}" for one, other in zip(a.sources, a.blocks))
        facts.append(_fact(tr("blocks"), a.change.words, blocks=len(a.blocks), note=note, **owner))
    step = story.step
    pool: list[tuple[str, int]] = [(tr("free"), step.free_blocks), (tr("kept for a prefix"), step.cached_blocks)]
    if header is not None:
        pool.append((tr("in all"), header.blocks))
    facts += [_fact(tr("pool after the step"), name, blocks=count) for name, count in pool]
    return Facts(COLUMNS, facts)
