"""A step as a table: its rows, then its phases, refusals and blocks, with exact numbers. No Qt in here."""

from app.inside.step.block_accounts import block_words
from app.inside.step.story import StepRow, StepStory
from app.ui.tables.facts import Cell, Facts

COLUMNS = tuple(
    "part, what, request, sample, slot, first, tokens in, tokens out, text, probability, cached before, "
    "found by prefix, padding, wasted, why wasted, positions attended, seconds, blocks, note".split(", ")
)


def _fact(part: str, what: str, **cells: Cell) -> tuple[Cell, ...]:
    known: dict[str, Cell] = {name.replace("_", " "): value for name, value in cells.items()}
    assert known.keys() <= set(COLUMNS), known.keys() - set(COLUMNS)
    return (part, what, *(known.get(name) for name in COLUMNS[2:]))


def _row(r: StepRow) -> tuple[Cell, ...]:
    whose: dict[str, Cell] = {"request": r.request, "sample": r.branch + 1, "slot": r.slot + 1}
    came: dict[str, Cell] = {"first": r.first, "tokens_in": r.count, "tokens_out": len(r.tokens)}
    if r.tokens:
        came["text"] = "".join(r.texts)
        came["probability"] = r.probabilities[0] if len(r.tokens) == 1 else None
    spent: dict[str, Cell] = {"padding": r.padding, "wasted": r.wasted, "why_wasted": r.waste.value or None}
    found: dict[str, Cell] = {"cached_before": r.first, "found_by_prefix": r.reused, "positions_attended": r.attended}
    note = "seconds: attention, computed"
    return _fact("row", r.kind_words, **whose, **came, **spent, **found, seconds=r.attention, note=note)


def step_facts(story: StepStory) -> Facts:
    """Every row of the step, then each part of its time, each refusal, preemption and change of blocks. `seconds` of a
    row are its part of attention's, which is computed."""
    times, header = story.times, story.header
    facts = [_row(story.row(at)) for at in range(len(story))]
    facts.append(_fact("time", "step", seconds=times.duration, note="from its launch to its end"))
    facts += [_fact("time", name, seconds=seconds) for name, seconds in times.parts.items()]
    facts.append(_fact("time", "record", seconds=times.record, note="after the step's end"))
    facts.append(_fact("time", "forward: matrix products", seconds=times.matrices, note=times.origin))
    facts.append(_fact("time", "forward: attention", seconds=times.attention, note=times.origin))
    if story.step.device:
        facts.append(_fact("time", "GPU", seconds=story.step.device, note="by the GPU's own clock"))
    if story.graph_words:
        facts.append(_fact("graph", story.graph_words, padding=story.spare or None))
    for (request, words), reason in zip(story.refused, story.step.refused_reason):
        note = f"{words.why}; {words.remedy}" if words.remedy else words.why
        facts.append(_fact("refused", reason, request=request, note=note))
    for request, branch in story.preempted:
        facts.append(_fact("preempted", "preempted", request=request, sample=branch + 1))
    for way, owners in (("swapped out", story.swapped_out), ("swapped in", story.swapped_in)):
        for (request, branch), blocks in owners.items():
            facts.append(_fact("host memory", way, request=request, sample=branch + 1, blocks=blocks))
    if story.step.swapping:
        facts.append(_fact("time", "prepare: swapping", seconds=story.step.swapping))
    for a in story.accounts:
        owner: dict[str, Cell] = {"request": a.request, "sample": a.branch + 1} if a.request >= 0 else {}
        note = block_words(a.blocks, None)
        if a.sources:
            note = ", ".join(f"{one} → {other}" for one, other in zip(a.sources, a.blocks))
        facts.append(_fact("blocks", a.change.words, blocks=len(a.blocks), note=note, **owner))
    step = story.step
    pool: list[tuple[str, int]] = [("free", step.free_blocks), ("kept for a prefix", step.cached_blocks)]
    if header is not None:
        pool.append(("in all", header.blocks))
    facts += [_fact("pool after the step", name, blocks=count) for name, count in pool]
    return Facts(COLUMNS, facts)
