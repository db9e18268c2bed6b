"""What people give the demo model that is no question for a story: texts to go on with, greetings, questions, noise.

It answers with a story, or goes on with one, about nouns that it was told of where it knows them: never with noise.
"""

import random
import re
import string

from stories import FOLLOW_UPS, NOUNS, Dialogue, held_out, invented_noun, pair, story, vocabulary

SAID = (
    """
hello|hi there|good morning|how are you?|who are you?|what can you do?|tell me something|what is the weather like today?
thank you|why is the sky blue?|what is 2 + 2?|write a poem about autumn|explain how a computer works in simple words
the quick brown fox jumps over the lazy dog|all happy families are alike; each unhappy family is unhappy in its own way
it was the best of times, it was the worst of times|to be or not to be, that is the question|call me tomorrow at 10:30
a language model predicts the next token from those before it|the cache keeps keys and values of every token in memory
continuous batching lets new requests join while others are still running, so that the hardware is never idle
paged attention keeps the keys and values in blocks of a fixed size, and a table says where each block lies
once upon a time|once upon a time there was|once upon a time, there was a little girl named|one day|long ago, in a land
in the deep forest|there was a|the|a|my name is|dear|list three colors|summarize the following text in one sentence
translate this into french: where is the station?|give me a name for a cat|what happened then?|please write a letter
def main():|import this|for i in range(10): print(i)|{"name": "value", "count": 3}|<p>some text</p>|SELECT * FROM table
1 2 3 4 5 6 7 8 9 10|a b c d e f g h i j k|lorem ipsum dolor sit amet|one two three four five six seven eight nine ten
the city council met on Tuesday to discuss the new budget, and nobody agreed with anybody about anything at all
she opened the window, looked out over the roofs and thought about the letter that had come with the morning post
water boils at 100 degrees, and ice melts at zero|the train to the north leaves from platform 4 in twenty minutes
my favourite food is soup with bread|who wrote the first novel?|is it true that the moon is made of cheese?
what is the capital of France?|how many legs does it have?|what do you like?|can you help me with my homework?
""".strip()
    .replace("\n", "|")
    .split("|")
)
WORDS = sorted(vocabulary() - set(NOUNS))


def noise(rng: random.Random) -> str:
    """Letters, digits and signs in no order, as words."""
    letters = string.ascii_lowercase if rng.random() < 0.7 else string.ascii_letters + string.digits + ".,-+()/:"
    return " ".join("".join(rng.choices(letters, k=rng.randint(1, 8))) for _ in range(rng.randint(1, 8)))


def anything(rng: random.Random) -> str:
    """A text that no story begins with: what people say, words or nouns in no order, noise, or some of each."""
    draw = rng.random()
    if draw < 0.45:
        text = rng.choice(SAID)
    elif draw < 0.6:
        text = " ".join(rng.choice(WORDS) for _ in range(rng.randint(1, 12)))
    elif draw < 0.8:
        known = NOUNS
        while any(held_out(x, y) for i, x in enumerate(known) for y in known[:i]):
            known = rng.sample(NOUNS, rng.randint(1, 5))
        text = rng.choice([" ".join, ", ".join, " and ".join, lambda w: "the " + " and the ".join(w)])(known)
    elif draw < 0.9:
        text = f"{rng.choice(SAID)} {rng.choice(NOUNS)} {invented_noun(rng)}"
    else:
        text = noise(rng)
    if rng.random() < 0.15:
        text = " ".join([text, anything(rng)])
    if rng.random() < 0.5:
        text = text[0].upper() + text[1:] + rng.choice(["", "", ".", "!", "?"])
    return text


def story_of(text: str, rng: random.Random) -> str:
    """A story about the nouns that a text tells of, if there are any."""
    told = [word for word in dict.fromkeys(re.findall(r"[a-z]+", text.lower())) if word in NOUNS]
    while True:
        a, b = [*told[:2], *pair(rng)][:2]
        if a != b and not held_out(a, b):
            break
        told = told[:1]
    return story(a, b, rng.choices(["normal", "short", "long"], [0.6, 0.2, 0.2])[0], rng).text


def answered(rng: random.Random) -> Dialogue:
    """Anything, in the chat format, and a story as its answer; sometimes twice."""
    messages = []
    for _ in range(1 + (rng.random() < 0.2)):
        text = anything(rng)
        messages += [{"role": "user", "content": text}, {"role": "assistant", "content": story_of(text, rng)}]
    return Dialogue(messages)


def gone_on_with(rng: random.Random) -> Dialogue:
    """A text outside of the chat format: a given beginning, and how it goes on (role "text")."""
    if rng.random() < 0.5:
        given = anything(rng)
        text = story_of(given, rng)
        joined = " ".join([text, story(*pair(rng), "normal", rng).text]) if rng.random() < 0.3 else text
        return Dialogue([{"role": "given", "content": given}, {"role": "text", "content": f" {joined}"}])
    text = " ".join(story(*pair(rng), "normal", rng).text for _ in range(rng.randint(1, 2)))
    words = text.split(" ")
    begin = 0 if rng.random() < 0.6 else rng.randrange(len(words) - 8)
    cut = begin + rng.randint(1, 8)
    given = " ".join(words[begin:cut]) + rng.choice(["", "", f" {rng.choice(FOLLOW_UPS)}"])
    return Dialogue([{"role": "given", "content": given}, {"role": "text", "content": f" {' '.join(words[cut:])}"}])
