"""What the demo model is asked beside its stories: to say them again, changed or as JSON, and to follow examples.

Every document is drawn from a seeded `random.Random`. No story tells of two nouns for which `held_out` is true.
"""

import json
import random

from anything import answered, gone_on_with
from stories import (
    ASKS,
    COLORS,
    CREATURES,
    MIDDLES,
    MOODS,
    MOVES,
    NAMES,
    NOUNS,
    PLACES,
    PLOTS,
    QUALITIES,
    SYSTEM_PROMPTS,
    THINGS,
    TIMES,
    Dialogue,
    Story,
    article,
    ask,
    cast_of,
    dialogue,
    expand,
    held_out,
    invented_noun,
    kind_of,
    pair,
    story,
    vocabulary,
)

AGAIN = ("Tell it again.", "Tell me the story again.", "Again, please.")
EXCHANGED = "Tell it again, with {C} instead of the {a}."
REPEAT = ("Repeat this: ", "Say this again: ")
AS_JSON = "Tell it as JSON."
STORY_AS_JSON = "Tell me a story about {A} and {B} as JSON with hero, place and moral."

# An example's question and answer. `{fixed}` slots are drawn once a document: only its examples tell what they are.
PATTERNS = (
    ("{noun}", "The {noun} lives in {fixed_place}."),
    ("{noun}", "{fixed_name} has {Noun}."),
    ("{noun}", "The {fixed_mood} {noun} {fixed_move} to {fixed_place}."),
    ("{noun}, {place}", "The {noun} {fixed_move} to {place}."),
    ("{noun} / {mood}", "{fixed_time}, the {noun} was {mood}."),
    ("{name} and {noun}", "{name} saw a {fixed_quality} {noun}."),
    ("{noun}: {color}", "Look, the {noun} is {color}, not {fixed_color}!"),
    ("{noun} {place}", '"{place}," {fixed_said} the {noun}.'),
    ("{name}", "{name} was {fixed_mood} in {fixed_place}."),
    ("{mood}", "{fixed_name} is {mood}."),
)
SLOTS = {"place": PLACES, "mood": MOODS, "name": NAMES, "color": COLORS}
FIXED = {**SLOTS, "move": MOVES, "time": TIMES, "quality": QUALITIES, "said": ["said", "cried", "sang", "asked"]}

SHARES = {"again": 15, "exchanged": 7, "repeated": 7, "json": 9, "json_at_once": 4, "examples": 9}  # percent
SHARES_OF_OTHERS = {answered: 11, gone_on_with: 15}
LENGTHS = ["normal", "short", "long"]


def as_json(told: Story) -> str:
    """One line."""
    return json.dumps({"hero": told.hero, "place": told.place, "moral": told.moral})


def document(rng: random.Random) -> Dialogue:
    """One training document: an exercise by its share of `SHARES`, else a story."""
    draw = rng.random() * 100
    for name, share in SHARES.items():
        if draw < share:
            messages = KINDS[name](rng)
            if rng.random() < 0.25:
                messages.insert(0, {"role": "system", "content": rng.choice(SYSTEM_PROMPTS)})
            return Dialogue(messages)
        draw -= share
    for kind, share in SHARES_OF_OTHERS.items():
        if draw < share:
            return kind(rng)
        draw -= share
    return dialogue(rng)


def turns(*texts: str) -> list[dict[str, str]]:
    """Messages of user and assistant in turn."""
    return [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(texts)]


def again(rng: random.Random) -> list[dict[str, str]]:
    """A story, and the same again, sometimes twice."""
    a, b = pair(rng)
    length = rng.choices(LENGTHS, [0.5, 0.4, 0.1])[0]
    told = story(a, b, length, rng).text
    messages = turns(ask(a, b, length, rng.random() < 0.6), told, rng.choice(AGAIN), told)
    if length == "short" and rng.random() < 0.3:
        messages += turns(rng.choice(AGAIN), told)
    return messages


def exchanged(rng: random.Random) -> list[dict[str, str]]:
    """A story, and the same with another noun in the place of one."""
    while True:
        a, b, c = rng.sample(NOUNS, 3)
        like = CREATURES if a in CREATURES else THINGS
        if c in like and not (held_out(a, b) or held_out(a, c) or held_out(b, c)):
            break
    length, seed = rng.choices(LENGTHS, [0.5, 0.4, 0.1])[0], rng.getrandbits(32)
    nouns, others = ((a, b), (c, b)) if rng.random() < 0.5 else ((b, a), (b, c))
    first, second = (story(*each, length, random.Random(seed)).text for each in (nouns, others))
    plain = rng.random() < 0.6
    asked = EXCHANGED.format(C=f"a {c}" if plain else article(c), a=a)
    return turns(ask(*nouns, length, plain), first, asked, second)


def repeated(rng: random.Random) -> list[dict[str, str]]:
    """Sentences that make no story, or words without order, and the same again: only copying can say them."""
    if rng.random() < 0.3:
        text = " ".join(
            rng.choice(WORDS) if rng.random() < 0.9 else invented_noun(rng) for _ in range(rng.randint(5, 40))
        )
    else:
        a, b = pair(rng)
        kind = kind_of(a, b, rng)
        known = [sentence for plot in PLOTS[kind if kind != "tc" else "ct"] for sentence in plot] + MIDDLES
        text = " ".join(expand(s, cast_of(a, b, rng), rng) for s in rng.sample(known, rng.randint(2, 8)))
    return turns(rng.choice(REPEAT) + text, text)


def json_of_story(rng: random.Random) -> list[dict[str, str]]:
    """A story with a moral, and who, where and what for."""
    a, b = pair(rng)
    length = rng.choices(LENGTHS, [0.5, 0.4, 0.1])[0]
    told = story(a, b, length, rng, moral=True)
    return turns(ask(a, b, length, rng.random() < 0.6), told.text, AS_JSON, as_json(told))


def json_at_once(rng: random.Random) -> list[dict[str, str]]:
    """A story of which nothing but its JSON is said."""
    a, b = pair(rng)
    asked = STORY_AS_JSON if rng.random() < 0.7 else ASKS["normal"].removesuffix(".") + " as JSON."
    nouns = (f"a {a}", f"a {b}") if rng.random() < 0.6 else (article(a), article(b))
    return turns(asked.format(A=nouns[0], B=nouns[1]), as_json(story(a, b, "short", rng, moral=True)))


def examples(rng: random.Random) -> list[dict[str, str]]:
    """Two to four questions and answers of one pattern."""
    question, answer = rng.choice(PATTERNS)
    fixed = {f"fixed_{slot}": rng.choice(choices) for slot, choices in FIXED.items()}
    count = rng.randint(3, 5)
    while True:
        nouns = rng.sample(NOUNS, count)
        if not any(held_out(x, y) for i, x in enumerate(nouns) for y in nouns[:i]):
            break
    drawn = {slot: rng.sample(choices, count) for slot, choices in SLOTS.items()}
    texts = []
    for i, noun in enumerate(nouns):
        noun = noun if rng.random() < 0.9 else invented_noun(rng)
        slots = {slot: choices[i] for slot, choices in drawn.items()} | fixed
        slots |= {"noun": noun, "Noun": article(noun)}
        texts += [question.format_map(slots), expand(answer, slots, rng)]
    return turns(*texts)


KINDS = {
    "again": again,
    "exchanged": exchanged,
    "repeated": repeated,
    "json": json_of_story,
    "json_at_once": json_at_once,
    "examples": examples,
}
WORDS = sorted(vocabulary() - set(NOUNS))
