"""Makes the demo model's AWQ checkpoint, and the texts of stories that it is calibrated with and measured on.

    python packaging/awq_demo.py [--group 128] [--out resources/models/stories-5m-awq] [--texts-only]

The texts are a function of their seeds. Calibration has the training's kind of dialogues; what is measured are stories
about pairs of nouns that no training story holds.
"""

import argparse
import random
import shutil
import sys
from pathlib import Path

from stories import Dialogue, ask, dialogue, held_out_pairs, tell

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

MEASURED = 60  # stories: about 6,000 tokens
CALIBRATION = 256  # dialogues


def as_chat(told: Dialogue) -> str:
    """As the demo's chat template writes it."""
    return "<s>" + "".join(f"<|{m['role']}|>{m['content']}</s>" for m in told.messages)


def measured_stories(count: int) -> list[str]:
    rng = random.Random(11)
    told = []
    for a, b in held_out_pairs(count, seed=11):
        length = rng.choices(["normal", "short", "long"], [0.7, 0.15, 0.15])[0]
        question, answer = ask(a, b, length, plain_article=rng.random() < 0.6), tell(a, b, length, rng)
        told.append(Dialogue([{"role": "user", "content": question}, {"role": "assistant", "content": answer}]))
    return [as_chat(each) for each in told]


def calibration_stories(count: int) -> list[str]:
    rng = random.Random(12)
    return [as_chat(dialogue(rng)) for _ in range(count)]


def main() -> None:
    from engine import quantize_to_awq
    from engine.quality import AwqRecipe

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "resources" / "models" / "stories-5m-awq")
    parser.add_argument("--group", type=int, default=128)
    parser.add_argument("--texts-only", action="store_true")
    options = parser.parse_args()
    texts = ROOT / "resources" / "texts"
    texts.mkdir(exist_ok=True)
    (texts / "stories.txt").write_text("\n\n".join(measured_stories(MEASURED)) + "\n")
    (texts / "calibration-stories.txt").write_text("\n\n".join(calibration_stories(CALIBRATION)) + "\n")
    if options.texts_only:
        return
    page = options.out / "README.md"
    told = page.read_text() if page.exists() else ""
    shutil.rmtree(options.out, ignore_errors=True)
    recipe = AwqRecipe("demo", "calibration-stories", options.out, group=options.group, samples=CALIBRATION, length=256)
    print(quantize_to_awq(recipe, lambda p: print(f"{p.stage} {p.done}/{p.total}", flush=True)))
    page.write_text(told)


if __name__ == "__main__":
    main()
