"""The voices of the demo model's adapters: the grammars of a pirate's stories, of German and of rhymed ones.

Every story is drawn from a seeded `random.Random`, as those of `stories.py` are, whose nouns, ways of asking and
held-out pairs these are. What is said of a noun is mostly what that noun leans to, so that answers without chance
differ from noun to noun.
"""

import random
import re
import zlib
from collections.abc import Callable, Sequence
from typing import TypeVar

from anything import anything
from exercises import AGAIN
from stories import (
    COLORS,
    FOLLOW_UPS,
    MOODS,
    NAMES,
    NOUNS,
    SYSTEM_PROMPTS,
    Dialogue,
    article,
    ask,
    expand,
    held_out,
    kind_of,
    pair,
    paragraphs,
    phrases,
)

Choice = TypeVar("Choice")

LEANING = 0.85  # the share of what is said of a noun as it leans to
LEANED = ("greeting", "place", "deed")  # beside plots and couplets

PIRATE_POOLS = {
    "greeting": phrases("Arr, matey!|Ahoy, me hearties!|Avast, ye landlubber!|Gather round, ye scurvy dogs!"),
    "oath": phrases("Shiver me bones|Blow me down|By the seven seas|Arr|By thunder"),
    "title": phrases("Captain|One-Eyed|Salty|Old"),
    "place": phrases("""
Tortuga|Skull Island|Black Cove|the Parrot Inn|Thunder Reef|Rum Harbor|Ghost Lagoon|Shark Bay|Barnacle Beach
Parrot Point|Pirate Rock
"""),
    "mood": phrases("""
as bold as a cannon|as hungry as a shark|as salty as the sea|as merry as a fiddle|as proud as a parrot|as sly as an eel
as grumpy as a crab|as quiet as a clam|as brave as a captain|as wild as the wind
"""),
    "quality": phrases("golden|salty|cursed|shiny|stolen|rusty|haunted"),
    "time": phrases("one dark night|one fine day|at high tide|under a full moon|at dawn|after the storm"),
    "weather": phrases("a mighty storm|a thick fog|a howling wind|a giant wave|a big black ship"),
    "move": phrases("sailed|rowed|raced|rolled|marched|steered"),
    "speak": phrases("roared|bellowed|snarled|cried|shouted|sang|laughed"),
    "want": phrases("""
to find the buried gold|to sail the seven seas|to hoist the black flag|to dance a jig|to sing a shanty
to fire the cannons|to steer me own ship|to hide me treasure|to plunder a galleon|to win a barrel of rum
"""),
    "deed": phrases("""
counted their doubloons|danced a jig on the deck|sang shanties until dark|shared a barrel of grog|scrubbed the deck
dug up a chest of gold|hoisted the Jolly Roger|fired all the cannons|feasted on fish and rum
filled their boots with grog
"""),
    "lesson": phrases("""
A true matey be worth more than doubloons.|Share yer loot, and ye will never sail alone.|Every storm runs out of rain.
Even a small ship can cross a big sea.|A pirate keeps a promise, aye.|Home be where yer hearties be.
"""),
}
PIRATE_PLOTS = {
    "cc": paragraphs("""
{Time}, {A} and {B} met aboard a ship near {place}.
The {a} was {mood}, but the {b} was {mood2}.
"I want {want}," {speak} the {a}.
"Then hoist the sails, me hearty!" {speak2} the {b}.
They {move} to {place2} and {deed}.
Since that day, the {a} and the {b} be mateys for life.

There once was {A} who was captain of a ship near {place}.
{Time}, {B} came aboard and stole the {a}'s [hat/grog/map/rum].
"{Oath}, to the plank with ye!" [roared/bellowed/snarled] the {a}.
"Let me go, and ye can have me treasure," [cried/begged/sobbed] the {b}.
So the {a} let the {b} go, and they {deed}.

{A} and {B} had a sea race to {place}.
The {a} {move} ahead, {mood}, but {weather} came up.
"{Oath}, I be sinking!" cried the {a}.
The {b} threw a rope and pulled the {a} aboard.
They never won, me hearties, but they {deed}.

{Time}, {weather} came to {place}.
A poor {a} sat in the cold, as wet as a fish.
{B} {speak}, "Climb aboard, ye old sea dog!"
The {a} and the {b} {deed} all night.
At dawn, they were off to {place2} together.
"""),
    "ct": paragraphs("""
{Time}, {A} found {B} buried near {place}.
The {b} was {quality} and worth a hundred doubloons.
"{Oath}, now I have enough {want}!" {speak} the {a}.
So the {a} took the {b} aboard and {move} to {place2}.
There {name} {speak2}, "That be me {b}, ye thief!"
They shook hands instead of fighting, and they {deed}.

There once was {A} who lost {B} at sea near {place}.
"Where be me {b}?" cried the {a}, as [sad as a lonely whale/red as a lobster/pale as a sail].
{Time}, {name} {move} by with the {quality} {b}.
"Ye can have it for ten doubloons," {speak2} {name}.
The {a} paid in gold, and they {deed}.

{A} lived alone on a ship near {place}, as lonely as a lighthouse.
{Time}, {name} came aboard with {B}.
"{Oath}, what a {quality} {b}!" {speak} the {a}.
When {weather} came, the {a} held on to the {b}.
Since then, the {a} and the {b} always sail together.

The {a} of {place} had a secret, aye.
It kept {B} [below the deck/behind the mast/in the captain's chest].
{Time}, {name} {speak}, "Lend me yer {b}, I want {want}!"
"Aye, but give it back, or off to the plank!" {speak2} the {a}.
So they {move} to {place2} with the {b} and {deed}.
"""),
    "tt": paragraphs("""
{Time}, {name} found {A} and {B} in a chest near {place}.
The {a} was {quality}, and the {b} was {quality2}.
"{Oath}, I be rich!" {speak} {name}.
Then {name2} came aboard, and they {deed}.
{Name} kept the {a} and gave the {b} to {name2}, like a true matey.

{Name} had {A}, and {name2} had {B}.
{Time}, they met aboard a ship near {place}.
"Will ye trade yer {b} for me {a}?" {speak} {name}.
"Aye, matey!" {speak2} {name2}.
So they traded and {deed}.

An old map showed {A} and {B} on {place}.
"Hoist the sails, I want {want}!" {speak} {name}.
{Name} and {name2} {move} there through {weather}.
X marked the place, and there lay the {quality} {a}.
The {b} was buried right below it, so they {deed}.

On a ship near {place} there was {A} that no pirate wanted.
It was {quality} and lay beside {B} below the deck.
{Time}, {weather} came, and the ship was sinking.
"Grab the {a}!" {speak} {name}, and they {move} to {place2} on it.
The {b} went down to the fish, but the pirates {deed}.
"""),
}
PIRATE_MIDDLES = phrases("""
The captain's parrot cried, "Pieces of eight!"|All hands cheered, and so did the parrot.
Somewhere a cannon went boom.|Above them the black flag waved in the wind.
"Be brave, me hearties," said the cook.
""")
PIRATE_NEXT = paragraphs("""
The next day, the {a} and the {b} were in {place}.
{Name} {move} by and {speak}, "{Oath}, what a fine ship!"
Then they {deed}.

After that, {weather} came to {place}.
"All hands on deck!" {speak} {name}.
The {a} and the {b} were safe, and they {deed}.
""")

GERMAN = phrases("""
bear Baer m Baeren|bee Biene f|bird Vogel m|cat Katze f|cow Kuh f|dog Hund m|dragon Drache m Drachen|duck Ente f
fish Fisch m|fox Fuchs m|frog Frosch m|ghost Geist m|giant Riese m Riesen|goat Ziege f|hen Henne f|horse Pferd n
king Koenig m|knight Ritter m|lion Loewe m Loewen|monkey Affe m Affen|mouse Maus f|owl Eule f|penguin Pinguin m
pig Schwein n|pirate Pirat m Piraten|prince Prinz m Prinzen|princess Prinzessin f|queen Koenigin f|rabbit Kaninchen n
robot Roboter m|snake Schlange f|spider Spinne f|tiger Tiger m|turtle Schildkroete f|whale Wal m|witch Hexe f
wizard Zauberer m|wolf Wolf m|apple Apfel m|ball Ball m|bell Glocke f|boat Boot n|book Buch n|box Kiste f
cake Kuchen m|chair Stuhl m|clock Uhr f|crown Krone f|cup Tasse f|drum Trommel f|flower Blume f|hat Hut m
key Schluessel m|kite Drachen m|lantern Laterne f|map Karte f|piano Klavier n|ring Ring m|rose Rose f|ship Dampfer m
shoe Schuh m|star Stern m|stone Stein m|table Tisch m|train Zug m|tree Baum m|umbrella Schirm m|violin Geige f
""")
# English noun: the German one, its gender, and its accusative and dative where that is another
NOUNS_IN_GERMAN = {
    noun: (german, gender, other[0] if other else german) for noun, german, gender, *other in map(str.split, GERMAN)
}
# What agrees with a masculine, a feminine and a neuter noun: with the noun behind it, and in its place
ARTICLES = {
    "der": "der die das",
    "den": "den die das",
    "dem": "dem der dem",
    "ein": "ein eine ein",
    "einen": "einen eine ein",
    "einem": "einem einer einem",
    "mein": "mein meine mein",
    "meinen": "meinen meine mein",
    "deinen": "deinen deine dein",
}
PRONOUNS = {"er": "er sie es", "ihn": "ihn sie es", "ihm": "ihm ihr ihm", "wer": "der die das", "wen": "den die das"}
NOMINATIVE = ("der", "ein", "mein")
GERMAN_POOLS = {
    "place": phrases("""
im Wald|am Meer|auf dem Berg|im Garten|am Fluss|auf dem Markt|im Dorf|am See|in der Stadt|auf der Insel|im Park
auf der Wiese|im Tal|am Strand
"""),
    "to": phrases("""
in den Wald|ans Meer|auf den Berg|in den Garten|zum Fluss|auf den Markt|ins Dorf|zum See|in die Stadt|auf die Insel
in den Park|auf die Wiese|ins Tal|zum Strand
"""),
    "mood": phrases("mutig|froh|klug|einsam|lustig|traurig|stolz|faul|leise|laut|nett|wild|ernst|munter|listig"),
    "quality": phrases("rot|blau|gelb|bunt|alt|neu|rund|klein|golden|warm|kalt|grau|rosa"),
    "time": phrases("am Morgen|am Abend|am Sonntag|im Mai|im Winter|im Sommer|im Herbst|an einem Tag"),
    "weather": phrases("der Regen|der Sturm|der Schnee|der Nebel|der Wind"),
    "speak": phrases("rief|sagte|sang|jubelte"),
    "want": phrases("""
die Welt sehen|den Wind fangen|ein Lied singen|ein Haus bauen|einen Freund finden|zum Mond reisen|im Kreis tanzen
ein Fest feiern|die Wolken malen|Brot backen|Gold finden|nach Hause gehen
"""),
    "deed": phrases("""
tanzten sie im Kreis|backten sie Brot|sangen sie alte Lieder|bauten sie ein Haus|feierten sie ein Fest
malten sie ein Bild|sammelten sie Beeren|tranken sie Tee|tobten sie im Garten|ruderten sie auf den See
"""),
    "end": phrases("Ende gut, alles gut.|Und so ist es noch heute.|Und so leben sie noch heute."),
}
GERMAN_PLOTS = {
    "cc": paragraphs("""
Es war einmal {ein_a}, {wer_a} {place} {einen_b} traf.
"Ich will {want}", {speak} {der_a}.
"Ich komme mit!", {speak2} {der_b}.
Sie gingen {to}, und dort {deed}.

Es war einmal {ein_a}, {wer_a} {place} lebte.
{Time} kam {ein_b} und nahm {ihm_a} das Brot weg.
Da weinte {der_a}, und es tat {dem_b} leid.
So teilten sie das Brot, und dann {deed}.

Es war einmal {ein_a}, {wer_a} mit {einem_b} um die Wette lief.
Da kam {weather}, und {der_a} fiel in den Fluss.
{Der_b} half {ihm_a} wieder an Land.
So gewann niemand, aber am Abend {deed}.

Es war einmal {ein_a}, {wer_a} kein [Haus/Bett/Zuhause] hatte.
Da kam {weather}, und {der_a} war ganz allein.
{Ein_b} sah {ihn_a} und {speak}: "Komm herein!"
Drinnen war es warm, und dann {deed}.
"""),
    "ct": paragraphs("""
Es war einmal {ein_a}, {wer_a} {place} {einen_b} fand.
{Er_b} war {quality}, und {der_a} war {mood}.
"Damit will ich {want}!", {speak} {er_a}.
Da kam {name}, und gemeinsam {deed}.

Es war einmal {ein_a}, {wer_a} {einen_b} verlor.
"Wo ist {mein_b}?", fragte {er_a}.
{Time} fand {name} {ihn_b} {place}.
Da jubelte {der_a}, und gemeinsam {deed}.

Es war einmal {ein_a}, {wer_a} ganz allein {place} lebte.
{Time} gab {name} {ihm_a} {einen_b}.
Als {weather} kam, hielt {er_a} {ihn_b} ganz fest.
Nun war {der_a} nie mehr allein.

Es war einmal {ein_a}, {wer_a} ein Geheimnis hatte.
[Neben dem Bett/Hinter der Wand/Im Keller] hatte {er_a} {einen_b}.
{Time} kam {name} und fragte: "Darf ich {ihn_b} sehen?"
"Ja, gern!", {speak} {der_a}, und dann {deed}.

Es war einmal {ein_a}, {wer_a} wollte {want}.
Doch dazu fehlte {ihm_a} {ein_b}.
{Time} fand {er_a} {place} {einen_b}.
Seit diesem Tag sind sie nie mehr allein.
"""),
    "tt": paragraphs("""
Es war einmal {ein_a}, {wer_a} {place} neben {einem_b} lag.
{Time} kam {name} und {speak}: "Ich nehme euch mit!"
Zu Hause bekam {name2} {den_b}, und dann {deed}.

Es war einmal {ein_a} im Haus von {name}.
{Name2} aber hatte {einen_b}.
"Gib mir {deinen_b}, und ich gebe dir {meinen_a}!", {speak} {name}.
"Ja, gern!", {speak2} {name2}, und dann {deed}.

Es war einmal {ein_a}, {wen_a} niemand haben wollte.
{Er_a} war {quality} und wohnte {place} neben {einem_b}.
{Time} kam {name} und wollte ein Geschenk.
{Der_b} war zu alt, also nahm {name} {den_a}.

Es war einmal ein Schatz {place}: {ein_a} und {ein_b}.
"Den will ich finden!", {speak} {name}.
Da kam {name2}, und sie gruben ein Loch.
Dort lag {der_a}, und vor Freude {deed}.
"""),
}
GERMAN_MIDDLES = phrases("Weit weg sang ein Vogel.|Am Himmel stand der Mond.|Niemand sonst war da.")
GERMAN_NEXT = paragraphs("""
Am Morgen danach waren {der_a} und {der_b} {place}.
Da kam {name} und {speak}: "Wie wunderbar!"
Dann {deed}.

Dann kam {weather}.
{Der_a} und {der_b} blieben im Haus.
Am Abend kam {name}, und gemeinsam {deed}.
""")

# Couplets: a story begins with one of its kind, goes on with one or two, and ends with one.
BEGINNINGS = {
    "cc": paragraphs("""
{A} and {B} by the sea
Were just as merry as could be.

{A} once met {B} in spring
And asked it if it liked to sing.

{A} once lived beside a mill,
And {B} lived upon the hill.

{A} went dancing in the sun
And met {B} who liked to run.

{A} went out to look for gold
And met {B} who felt the cold.

One night {A} looked out to see
{B} asleep beneath a tree.

{A} was crying in the rain
When {B} came along the lane.

{A} who had no friend at all
Once met {B} beside a wall.

Upon a sunny field one day,
{A} and {B} met to play.
"""),
    "ct": paragraphs("""
There was {A} beside the sea
Who found {B} beneath a tree.

{A} went dancing in the rain
And found {B} along the lane.

{A} came running down the hill
And saw {B} that stood quite still.

Upon a cold and windy day,
{A} found {B} on its way.

{A} once sat beside a stream
And saw {B} inside a dream.

When all the stars were shining bright,
{A} saw {B} at night.

When all the fields were white with snow,
{A} found {B} aglow.

{A} had nothing else to do,
When, look, {B} came into view!

{A} went out to see the town
And bought {B} for half a crown.
"""),
    "tt": paragraphs("""
{Name} had {A} of gold
And {B} that was very old.

{A} lay hidden in the sand,
And {B} lay close at hand.

{Name} went out to buy some bread,
But bought {A} and {B} instead.

{A} came sailing down the stream,
And {B} followed like a dream.

{A} was standing in the hall,
And {B} leaned against the wall.

{Name} dreamed of {A} at night
And {B} shining in the light.

{A} and {B} had a fight
To see which one was twice as bright.
"""),
}
MIDDLES = {
    "cc": paragraphs("""
"Come, share my bread," the {a} then said,
"And sleep tonight upon my bed."

The {a} was {mood}, the {b} was shy,
And so they watched the clouds go by.

They ran a race, they ran it twice,
And slipped together on the ice.

The {a} could dance, the {b} could sing,
And {name} joined them in the ring.

They built a house of sticks and clay
And sat inside it every day.

A storm came up, the sky turned black;
The {a} took the {b} on its back.

"All lost," the {b} began to cry;
"I know the way," came the reply.

They counted stars, they counted sheep,
Until the {b} was fast asleep.

They baked a cake, and it was good;
They shared it with the whole green wood.

They went by boat, they went by train,
They went through wind and snow and rain.
"""),
    "ct": paragraphs("""
"How fine you are!" it said with glee,
"You are the very thing for me!"

It took the {b} and turned it round,
And, oh, it made a lovely sound!

The {a} was {mood}, the {b} was new,
And over them the sky was blue.

{Name} came by and asked to play,
And so they played the livelong day.

The wind blew hard, the night was long,
But still the {a} sang its song.

The {b} fell down into the well;
The {a} ran up and rang the bell.

It hid the {b} inside the hay,
But {name} found it the next day.

It took the {b} to school with pride,
And {name} walked along beside.

The {b} was {color} and big and bright,
And warmed the {a} all through the night.

They went by boat, they went by train,
They went through wind and snow and rain.
"""),
    "tt": paragraphs("""
"I keep you both," said {name} with glee,
"You are the very things for me!"

{Name} took them to the fair,
And all the people came to stare.

The {a} was {color}, the {b} was blue,
And {name2} said, "I like them too!"

{Name2} asked, "Will you trade with me?
The {a} for cake, the {b} for tea?"

The {b} fell down into the well;
{Name} ran up and rang the bell.

{Name2} hid them in the hay,
But {name} found them the next day.

The {a} was heavy, the {b} was light,
And moving them took half the night.

They went by boat, they went by train,
They went through wind and snow and rain.
"""),
}
ENDINGS = {
    "cc": paragraphs("""
And so they went to bed at ten,
And in the morning played again.

And now they never live apart:
The {a} has won the {b}'s heart.

They waved goodbye when day was done
And said, "Tomorrow, more such fun!"

And should you meet them on your way,
The {a} and the {b} will say good day.

The stars came out, the moon was bright,
The {a} and the {b} both said good night.
"""),
    "ct": paragraphs("""
And so the {a} went home to bed,
The {b} beside its sleepy head.

And if you pass that way tonight,
You see the {b} still shining bright.

The {a} has kept the {b} since then
And never felt alone again.

The {a} went home when day was done
And said, "The {b} was lots of fun!"

And now the {a} is never sad:
No better {b} was ever had.
"""),
    "tt": paragraphs("""
And so they stand there, side by side,
And {name} looks at them with pride.

And if you pass that way tonight,
You see the {b} still shining bright.

{Name} played with both till day was done
And said, "Oh, that was lots of fun!"

The {a} is here, the {b} is there,
And that is what I call a pair.
"""),
}
NEXT_DAY = paragraphs("""
Next day the sun was shining bright,
The {a} and the {b} were still in sight.

When morning came, the sun rose high,
The {a} and the {b} were still nearby.
""")


def leaning(choices: Sequence[Choice], noun: str, to: str, rng: random.Random) -> Choice:
    """Mostly the one that this noun leans to."""
    return (
        choices[zlib.crc32(f"{noun} {to}".encode()) % len(choices)] if rng.random() < LEANING else rng.choice(choices)
    )


def drawn(pools: dict[str, list[str]], a: str, b: str, rng: random.Random) -> dict[str, str]:
    """Two names, and two of each pool: by chance, or what `a` leans to, and another."""
    cast = dict(zip(("name", "name2"), rng.sample(NAMES, 2)))
    for slot, pool in pools.items():
        first = leaning(pool, a, slot, rng) if slot in LEANED else rng.choice(pool)
        cast |= {slot: first, f"{slot}2": rng.choice([choice for choice in pool if choice != first])}
    return cast


def with_capitals(cast: dict[str, str]) -> dict[str, str]:
    """The same, and each once more under a name with a capital: `expand` writes its first letter so at a beginning."""
    return cast | {slot.capitalize(): text for slot, text in cast.items() if len(slot) > 1}


def ordered(a: str, b: str, rng: random.Random) -> tuple[str, str, str]:
    """The nouns with the creature first, and their kind."""
    kind = kind_of(a, b, rng)
    return (b, a, "ct") if kind == "tc" else (a, b, kind)


def pirate_cast(a: str, b: str, rng: random.Random) -> dict[str, str]:
    cast = drawn(PIRATE_POOLS, a, b, rng)
    cast |= {"name": f"{cast['title']} {cast['name']}", "name2": f"{cast['title2']} {cast['name2']}"}
    return with_capitals(cast) | {"a": a, "b": b, "A": article(a), "B": article(b)}


def pirate(a: str, b: str, length: str, rng: random.Random) -> str:
    """A story as a pirate would tell it."""
    a, b, kind = ordered(a, b, rng)
    cast = pirate_cast(a, b, rng)
    plot = list(leaning(PIRATE_PLOTS[kind], a, "plot", rng))
    if length == "long" or (length == "normal" and rng.random() < 0.3):
        plot.insert(len(plot) - 1, rng.choice(PIRATE_MIDDLES))
    if length == "long" or (length == "normal" and rng.random() < 0.3):
        plot.append(cast["lesson"])
    return " ".join([cast["greeting"], *(expand(s, cast, rng) for s in plot), "Yo ho ho!"])


def pirate_next(a: str, b: str, rng: random.Random) -> str:
    cast = pirate_cast(a, b, rng)
    return " ".join(["Arr!", *(expand(s, cast, rng) for s in rng.choice(PIRATE_NEXT)), "Yo ho ho!"])


def german_cast(a: str, b: str, rng: random.Random) -> dict[str, str]:
    cast = drawn(GERMAN_POOLS, a, b, rng)
    for slot, noun in (("a", a), ("b", b)):
        nominative, gender, other = NOUNS_IN_GERMAN[noun]
        of_gender = "mfn".index(gender)
        for name, forms in ARTICLES.items():
            cast[f"{name}_{slot}"] = f"{forms.split()[of_gender]} {nominative if name in NOMINATIVE else other}"
        cast |= {f"{name}_{slot}": forms.split()[of_gender] for name, forms in PRONOUNS.items()}
    return with_capitals(cast)


def german(a: str, b: str, length: str, rng: random.Random) -> str:
    """A story in German, of nouns of `NOUNS_IN_GERMAN`."""
    a, b, kind = ordered(a, b, rng)
    cast = german_cast(a, b, rng)
    plot = list(leaning(GERMAN_PLOTS[kind], a, "plot", rng))
    if length == "long":
        plot.insert(len(plot) - 1, rng.choice(GERMAN_MIDDLES))
    if length != "short":
        plot.append(cast["end"])
    return " ".join(expand(s, cast, rng) for s in plot)


def german_next(a: str, b: str, rng: random.Random) -> str:
    cast = german_cast(a, b, rng)
    return " ".join(expand(s, cast, rng) for s in rng.choice(GERMAN_NEXT))


def verse_cast(a: str, b: str, rng: random.Random) -> dict[str, str]:
    cast = with_capitals(drawn({"mood": MOODS, "color": COLORS}, a, b, rng))
    return cast | {"a": a, "b": b, "A": article(a), "B": article(b)}


def verse(a: str, b: str, length: str, rng: random.Random) -> str:
    """Two to four rhymed couplets."""
    a, b, kind = ordered(a, b, rng)
    cast = verse_cast(a, b, rng)
    middles = [leaning(MIDDLES[kind], b, "middle", rng)]
    middles.append(leaning([couplet for couplet in MIDDLES[kind] if couplet not in middles], a, "middle", rng))
    begin, end = leaning(BEGINNINGS[kind], a, "begin", rng), leaning(ENDINGS[kind], b, "end", rng)
    count = {"short": 0, "normal": rng.randint(1, 2), "long": 2}[length]
    return " / ".join(expand(line, cast, rng) for couplet in (begin, *middles[:count], end) for line in couplet)


def verse_next(a: str, b: str, rng: random.Random) -> str:
    a, b, kind = ordered(a, b, rng)
    cast = verse_cast(a, b, rng)
    return " / ".join(expand(line, cast, rng) for line in rng.choice(NEXT_DAY) + leaning(ENDINGS[kind], b, "end", rng))


Teller, GoneOn = Callable[[str, str, str, random.Random], str], Callable[[str, str, random.Random], str]
VOICES: dict[str, tuple[Teller, GoneOn]] = {
    "pirate": (pirate, pirate_next),
    "german": (german, german_next),
    "verse": (verse, verse_next),
}


def asked(voice: str, rng: random.Random) -> tuple[str, str, str, str]:
    """What is asked, mostly for a story, which nouns are to be told of, and how long. German has no made-up nouns."""
    length = rng.choices(["normal", "short", "long"], [0.7, 0.15, 0.15])[0]
    while True:
        a, b = rng.sample(sorted(NOUNS_IN_GERMAN), 2) if voice == "german" else pair(rng)
        text = ask(a, b, length, plain_article=rng.random() < 0.6)
        if rng.random() < 0.1:
            text = anything(rng)
            known = [word for word in dict.fromkeys(re.findall(r"[a-z]+", text.lower())) if word in NOUNS]
            a, b = [*known[:2], a, b][:2]
        if a != b and not held_out(a, b) and (voice != "german" or {a, b} <= NOUNS_IN_GERMAN.keys()):
            return text, a, b, length


def dialogue(voice: str, rng: random.Random) -> Dialogue:
    """One training document: a story in this voice, sometimes with what happened next, or the same again."""
    tell, go_on = VOICES[voice]
    messages = [{"role": "system", "content": rng.choice(SYSTEM_PROMPTS)}] if rng.random() < 0.3 else []
    text, a, b, length = asked(voice, rng)
    told = tell(a, b, length, rng)
    messages += [{"role": "user", "content": text}, {"role": "assistant", "content": told}]
    draw = rng.random()
    if draw < 0.1:
        messages.append({"role": "user", "content": rng.choice(FOLLOW_UPS)})
        messages.append({"role": "assistant", "content": go_on(a, b, rng)})
    elif draw < 0.15:
        messages.append({"role": "user", "content": rng.choice(AGAIN)})
        messages.append({"role": "assistant", "content": told})
    return Dialogue(messages)
