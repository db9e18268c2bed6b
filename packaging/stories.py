"""The grammar of the demo model's micro-stories: its words, its plots, and which noun pairs it never trains on.

Every story is drawn from a seeded `random.Random`, so the corpus is a function of its seed. Pairs of nouns for which
`held_out` is true never share a training story: the demo model's test asks for exactly those.
"""

import random
import re
import zlib
from dataclasses import dataclass


def phrases(text: str) -> list[str]:
    """Those that stand between bars and ends of lines."""
    return text.strip().replace("\n", "|").split("|")


CREATURES = """
ant badger bat bear beaver bee beetle bird bison boy buffalo bull butterfly camel cat chicken cobbler cow crab crane
cricket crocodile crow deer dog dolphin donkey dove dragon duck eagle eel elephant elf farmer ferret firefly fish
fisherman flamingo fox frog gardener ghost giant giraffe girl goat goose gorilla grasshopper hare hawk hedgehog hen
heron hippo horse kangaroo king kitten knight koala ladybug lamb leopard lion lizard llama lobster magpie mermaid miner
mole monkey moose moth mouse mule newt octopus ostrich otter owl ox painter panda panther parrot peacock pelican
penguin pig pigeon pirate pony prince princess puppy queen rabbit raccoon ram rat raven robin robot rooster sailor
seal shark sheep shepherd sloth snail snake sparrow spider squirrel stork swallow swan tailor tiger toad troll turkey
turtle unicorn walrus wasp weasel whale witch wizard wolf woodpecker worm yak zebra
""".split()

THINGS = """
acorn anchor apple apron axe bag ball balloon banjo barrel basket bell bicycle blanket boat bone book boot bottle bowl
box bracelet branch brick bridge broom brush bucket button cake candle cane cape carpet cart castle chair cherry chest
clock cloak coat coin compass cookie crown cup diamond door drum egg fan feather fence fiddle flag flower flute fork
fountain gate gem glove guitar hammer harp hat helmet horn igloo jar jewel jug kettle key kite ladder lamp lantern leaf
lemon letter locket map marble mask medal melon mill mirror mitten mushroom nail necklace needle nest net nut oar orange
paddle pan peach pear pearl pebble pencil piano pie pillow pipe pot potato pumpkin puppet puzzle quilt radio rake ribbon
ring rocket rope rose ruby rug sack saddle sail sandwich scarf seed shell shield ship shoe shovel sled sock spoon star
statue stone stool stove sword table tambourine tea teapot telescope tent thimble torch towel toy train tree trumpet
tunnel umbrella vase violin wagon watch wheel whistle window wreath
""".split()

NOUNS = CREATURES + THINGS

NAMES = "Mia Tom Lily Ben Anna Max Rosa Leo Ivy Sam Nora Finn Zoe Hugo Ella Otto Ruby Jack Clara Theo".split()

PLACES = phrases("""
the forest|the old mill|the river|the sea|the market|the village|the tall mountain|the green valley|the dark cave
the quiet meadow|the harbor|the windy hill|the garden|the frozen lake|the desert|the big barn|the stone tower
the sunny beach|the deep woods|the busy town|the orchard|the lighthouse|the swamp|the snowy field|the little island
the red cliff|the hidden pond|the empty castle|the school|the bakery|the library|the railway|the long road
the waterfall|the palace|the corn field|the north wall|the narrow street|the old bridge|the pine grove|the misty bay
the rose garden|the farm|the canyon|the jungle|the park|the fair|the ruins|the vineyard|the crossroads
""")

MOODS = """
happy sad brave shy proud lonely curious gentle clever sleepy hungry merry grumpy kind quiet jolly nervous patient
silly wise bold calm careful cheerful eager foolish friendly gloomy honest humble lazy lively loyal lucky noisy polite
restless stubborn timid weary wild worried playful thoughtful greedy mighty
""".split()

COLORS = "red blue green golden silver white black yellow purple orange brown gray pink crimson".split()
QUALITIES = "small big old tiny shiny broken heavy strange lovely plain dusty bright smooth rusty crooked soft".split()
WEATHERS = "rain snow wind thunder fog frost sunshine hail mist moonlight".split()
TIMES = phrases("""
one morning|one evening|one day|last winter|last summer|in the spring|on a cold night|on a warm day|at dawn|at noon
before breakfast|after the harvest|on a rainy day|under a full moon|late one night|early in the autumn
""")
MOVES = phrases("walked|ran|hurried|wandered|crept|marched|climbed|danced|raced|stumbled|sailed|rode|strolled|skipped")
SEES = phrases("saw|found|met|noticed|discovered|spotted|came upon|bumped into|heard")
SPEAKS = phrases("said|whispered|cried|shouted|answered|asked|sang|laughed|sighed|called")
WANTS = phrases("""
to see the world|to learn a song|to find a friend|to win a race|to build a house|to cross the water|to go home
to cook a feast|to hide a secret|to catch the wind|to touch the moon|to plant a garden|to tell a joke
to solve a riddle|to climb to the top|to sleep all day|to paint the sky|to share a meal|to make a wish
to hear the ocean|to ring every bell|to win a prize|to fix the roof|to count the stars|to write a poem
""")
DEEDS = phrases("""
helped each other|shared some bread|told old tales|sang until dark|danced in a ring|rested in the shade
played all afternoon|worked side by side|dug a deep hole|built a warm fire|picked sweet berries|swam across the water
drew a funny picture|counted every cloud|followed the tracks|looked behind every rock|baked a huge cake
mended the roof|chased their shadows|watched the clouds|threw snowballs|gathered dry wood|crossed the stream
carried water up the hill|listened to the birds|polished the old bell
""")
MORALS = phrases("""
A true friend is worth more than gold|It is never too late to say sorry|Small steps can cross a mountain
Kind words open many doors|Those who share are never poor|Patience finds what hurry loses
Even the smallest light can lead the way|A promise kept is a treasure|Work is lighter when it is shared
Courage can be quiet|Home is where someone waits for you|The best gifts are given freely
Look twice before you judge|Every storm runs out of rain
""")

SYSTEM_PROMPTS = (
    "You are a storyteller.",
    "You tell short stories to children.",
    "You are a kind teacher who tells stories.",
    "Answer with a story.",
    "You are a helpful assistant. Tell stories in plain words.",
)


# A shape is a list of sentences; `{slot}` is filled from the cast, `[x/y]` takes one of its parts at random. `A` and
# `B` are the two nouns with their article, `a` and `b` bare. Sentences work for creatures and things alike where the
# shape's key says "any"; the others need a creature (c) or a thing (t) in that place.
def paragraphs(text: str) -> list[list[str]]:
    """The lines of each."""
    return [paragraph.splitlines() for paragraph in text.strip().split("\n\n")]


PLOTS = {
    "cc": paragraphs("""
{Time}, {A} and {B} [met/sat down/stopped] near {place}.
The {a} was {mood}, but the {b} was {mood2}.
"I want {want}," {speak} the {a}.
"Then I will [help you/come with you/show you how]," {speak2} the {b}.
They {move} to {place2} and {deed}.
By [night/evening/sunset], the {a} and the {b} were [best friends/good friends/no longer strangers].

There was once {A} who lived near {place}.
{Time}, {B} came by and [took/stole/borrowed] the {a}'s [lunch/hat/supper/bed].
The {a} was {mood} and {move} all the way to {place2}.
There the {b} sat, {mood2} and [alone/cold/sorry].
"I am sorry," {speak} the {b}.
So the {a} forgave the {b}, and they {deed}.

{A} and {B} had a race to {place}.
The {a} {move} first, but the {weather} [came/began/blew in].
The {b} was {mood} and stopped to {see_base} a {color} [flower/stone/bird].
In the end, nobody won.
The {a} and the {b} [laughed/smiled/shrugged], and then they {deed}.

{Time}, the {weather} came to {place}.
A {mood} {a} had no [home/roof/bed/fire].
{B} [opened the door/heard the noise/looked out] and {speak}, "Come in."
The {a} and the {b} {deed}.
When the {weather} ended, the {a} was {mood2} again.
The {b} was happy too.
"""),
    "ct": paragraphs("""
{Time}, {A} {see} {B} near {place}.
The {b} was {quality} and {color}.
The {a} was {mood} and wanted {want}.
So the {a} took the {b} and {move} to {place2}.
There, {name} {speak}, "[What a/I like that/That is my] {b}!"
The {a} gave the {b} to {name}, and they {deed}.

Once there was {A} who lost {B2} in {place}.
"Where is my {b}?" {speak} the {a}.
The {a} looked [under every leaf/behind every door/in every corner] and felt {mood}.
{Time}, {name} {move} past {place2} and {see} the {quality} {b}.
{name} brought the {b} back.
The {a} was so {mood2} that they {deed}.

{A} lived alone in {place} and was very {mood}.
{Time}, {name} brought {B} as a gift.
The {b} was {quality}, but the {a} loved it.
Every night, the {a} [slept beside/sang to/looked at/cleaned] the {b}.
When the {weather} came, the {b} kept the {a} [warm/safe/busy/happy].
The {a} was never {mood} again.

The {a} of {place} had a secret.
It kept {B2} [under the bed/in a hole/behind the wall/up in the roof].
{Time}, {name} {see} the {b} and {speak}, "May I use it {want}?"
The {a} felt {mood}, but said yes.
They {move} to {place2} with the {b}.
The {b} [worked/broke/glowed/was lost], and still the {a} {speak2} with joy.
"""),
    "tt": paragraphs("""
{Time}, {name} {see} {B} and {A} near {place}.
The {a} was {quality}, and the {b} was {color}.
"I can use them {want}," {speak} {name}.
{name} {move} to {place2} with the {a} and the {b}.
{name2} came along, and they {deed}.
At the end of the day, {name} kept the {a} and gave the {b} to {name2}.

{name} had {A} and {name2} had {B}.
{name} was {mood}, and {name2} was {mood2}.
{Time}, they {move} to {place}.
"Will you trade your {b} for my {a}?" {speak} {name}.
"Yes," {speak2} {name2}.
So {name} went home with the {b}, and {name2} kept the {a}.

In {place} there was {A} that nobody wanted.
It was {quality} and stood beside {B}.
{Time}, {name} needed something {want}.
The {b} was too {quality2}, so {name} took the {a}.
{name} {move} all the way to {place2} and {deed_past}.
Since then, the {a} and the {b} have a place [by the fire/near the door/on the shelf].

An old map in {place} showed {A} and {B}.
{name} and {name2} wanted {want}.
They followed the map and {move} to {place2}.
{Time}, they {see} the {quality} {a}.
The {b} was [buried/hidden/waiting] under it.
{name} {speak}, "The {a} is mine, and the {b} is yours."
"""),
}

MIDDLES = [
    "But then the {weather} came, and the {a} was lost.",
    "{name} {move} by and asked about the {b}.",
    "For [two/three/seven/ten] days nothing happened.",
    "The {a} and the {b} were [tired/hungry/cold/dusty] but [safe/together/lucky].",
    "Far away, a {color} [bird/light/cloud] crossed the sky.",
    "Nobody in {place} had ever seen such a {quality} [day/thing/path/morning].",
    '"Be {mood}," {speak} {name}, "and look again."',
    "They stopped near {place2} and {deed}.",
    "The {b} [fell/rolled/slipped] into the [water/grass/mud], but the {a} was near.",
    "On the way, they {see} {name}, who was {mood2}.",
]

NEXT = paragraphs("""
The next day, the {a} and the {b} were in {place}.
{name} {move} by and {speak}, "How {mood} you are!"
Then they {deed}.

After that, the {a} was {mood}.
{name} took the {b} to {place}, and they {deed}.
Nobody was {mood2} any more.

Later, the {weather} came back to {place}.
The {a} and the {b} stayed [inside/together/near the fire].
In the morning, {name} {see} them, and they {deed}.
""")

ASKS = {
    "normal": "Tell me a story about {A} and {B}.",
    "short": "Tell me a short story about {A} and {B}.",
    "long": "Tell me a long story about {A} and {B}.",
}
LOOKS = ["look at", "admire", "pick up"]
ONSETS, VOWELS = "b c d f g k l m n p r s t v w z sh st tr gr pl".split(), "a e i o u ea oo".split()
FOLLOW_UPS = ("What happened next?", "And then?", "Tell me more.", "Go on.")


def held_out(a: str, b: str) -> bool:
    """True for the 3 % of noun pairs (in either order) that no training story contains."""
    return zlib.crc32(" ".join(sorted((a, b))).encode()) % 100 < 3


def article(word: str) -> str:
    """The word with its indefinite article."""
    return f"an {word}" if word[0] in "aeiou" and not word.startswith("uni") else f"a {word}"


@dataclass(frozen=True)
class Dialogue:
    """Messages of one training document, oldest first, as the chat template takes them."""

    messages: list[dict[str, str]]


def expand(sentence: str, slots: dict[str, str], rng: random.Random) -> str:
    sentence = re.sub(r"\[([^\]]*)\]", lambda m: rng.choice(m[1].split("/")), sentence)
    text = re.sub(r"\{(\w+)\}", lambda m: slots[m[1]], sentence)
    text = re.sub(r"\ba (?=[aeiou](?!nicorn))", "an ", text)
    return re.sub(r'^("?)(\w)', lambda m: m[1] + m[2].upper(), text)


def cast_of(a: str, b: str, rng: random.Random) -> dict[str, str]:
    name, name2 = rng.sample(NAMES, 2)
    place, place2 = rng.sample(PLACES, 2)
    mood, mood2 = rng.sample(MOODS, 2)
    quality, quality2 = rng.sample(QUALITIES, 2)
    deed = rng.choice(DEEDS)
    adjective = rng.choice(QUALITIES + COLORS)
    owned = f"{rng.choice(['the', 'its'])} {rng.choice(['', f'{adjective} '])}{b}"
    cast = {"a": a, "b": b, "A": article(a), "B": article(b), "B2": owned, "name": name, "name2": name2}
    cast |= {"place": place, "place2": place2, "mood": mood, "mood2": mood2, "quality": quality, "quality2": quality2}
    cast |= {"color": rng.choice(COLORS), "weather": rng.choice(WEATHERS), "Time": rng.choice(TIMES)}
    cast |= {"move": rng.choice(MOVES), "see": rng.choice(SEES), "see_base": rng.choice(LOOKS)}
    cast |= {"speak": rng.choice(SPEAKS), "speak2": rng.choice(SPEAKS), "want": rng.choice(WANTS)}
    return cast | {"deed": deed, "deed_past": deed}


def kind_of(a: str, b: str, rng: random.Random) -> str:
    return "".join("t" if n in THINGS else "c" if n in CREATURES else rng.choice("ct") for n in (a, b))


@dataclass(frozen=True)
class Story:
    """A told story, and what it says of itself: its hero ("the fox", or a name), its first place, its moral ("" none)."""

    text: str
    hero: str
    place: str
    moral: str


def story(a: str, b: str, length: str, rng: random.Random, moral: bool | None = None) -> Story:
    """One story about nouns `a` and `b`; `length` is "short", "normal" or "long" (about 45, 85 and 150 words). `moral`
    says whether it ends with one (None: at random, never a short one)."""
    kind = kind_of(a, b, rng)
    if kind == "tc":
        a, b, kind = b, a, "ct"
    slots = cast_of(a, b, rng)
    plot = list(rng.choice(PLOTS[kind]))
    if length == "short":
        plot = plot[:3] + plot[-1:]
    extra = {"short": 0, "normal": rng.randint(0, 2), "long": rng.randint(6, 8)}[length]
    for sentence in rng.sample(MIDDLES, extra):
        plot.insert(rng.randint(3, len(plot) - 1), sentence)
    told = [expand(s, slots, rng) for s in plot]
    if moral is None:
        moral = length != "short" and rng.random() < 0.5
    lesson = rng.choice(MORALS) + "." if moral else ""
    text = " ".join([*told, lesson] if moral else told)
    return Story(text, slots["name"] if kind == "tt" else f"the {a}", slots["place"], lesson)


def tell(a: str, b: str, length: str, rng: random.Random) -> str:
    """The text of `story`."""
    return story(a, b, length, rng).text


def invented_noun(rng: random.Random) -> str:
    """A made-up word, so that the model learns to copy nouns it has never seen."""
    syllables = (rng.choice(ONSETS) + rng.choice(VOWELS) for _ in range(rng.randint(1, 3)))
    return "".join(syllables) + rng.choice(["", "n", "r", "t", "x", "ll", "m"])


def ask(a: str, b: str, length: str = "normal", plain_article: bool = True) -> str:
    """The user's turn. `plain_article` writes "a" before every noun, as a filled-in template does."""
    return ASKS[length].format(A=f"a {a}" if plain_article else article(a), B=f"a {b}" if plain_article else article(b))


def pair(rng: random.Random) -> tuple[str, str]:
    """Two nouns that may share a training story; now and then a made-up one."""
    while True:
        a, b = rng.sample(NOUNS, 2)
        if not held_out(a, b):
            break
    if rng.random() < 0.06:
        a = invented_noun(rng)
    if rng.random() < 0.06:
        b = invented_noun(rng)
    return a, b


def dialogue(rng: random.Random) -> Dialogue:
    """One training document: sometimes a system prompt, a story, sometimes a follow-up or a second story."""
    messages = [{"role": "system", "content": rng.choice(SYSTEM_PROMPTS)}] if rng.random() < 0.25 else []

    def story_turn() -> tuple[str, str]:
        a, b = pair(rng)
        length = rng.choices(["normal", "short", "long"], [0.7, 0.15, 0.15])[0]
        messages.append({"role": "user", "content": ask(a, b, length, plain_article=rng.random() < 0.6)})
        messages.append({"role": "assistant", "content": tell(a, b, length, rng)})
        return a, b

    a, b = story_turn()
    draw = rng.random()
    if draw < 0.15:
        slots = cast_of(a, b, rng)
        messages.append({"role": "user", "content": rng.choice(FOLLOW_UPS)})
        messages.append({"role": "assistant", "content": " ".join(expand(s, slots, rng) for s in rng.choice(NEXT))})
    elif draw < 0.25:
        story_turn()
    return Dialogue(messages)


def vocabulary() -> set[str]:
    """Every lower-case word that a story can contain."""
    text = [" ".join(NOUNS + NAMES + MOODS + COLORS + QUALITIES + WEATHERS + MORALS + PLACES + TIMES + MOVES + SEES)]
    text += [" ".join(SPEAKS + WANTS + DEEDS + LOOKS + ["a", "an", "the", "its"])]
    for plot in [p for shapes in PLOTS.values() for p in shapes] + [MIDDLES] + NEXT:
        text += [re.sub(r"\{\w+\}", " ", s) for s in plot]
    return set(words(" ".join(text)))


def words(text: str) -> list[str]:
    """The lower-case words of a text, possessives without their 's."""
    return re.findall(r"[a-z]+", re.sub(r"'s\b", "", text.lower()))


def held_out_pairs(count: int, seed: int = 0) -> list[tuple[str, str]]:
    """`count` different noun pairs for which `held_out` is true."""
    rng, pairs = random.Random(seed), []
    while len(pairs) < count:
        a, b = rng.sample(NOUNS, 2)
        if held_out(a, b) and (a, b) not in pairs:
            pairs.append((a, b))
    return pairs
