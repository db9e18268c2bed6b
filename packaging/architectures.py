"""Writes the table of model types that the engine serves: python packaging/architectures.py [FILE].

Goes through transformers' causal models and applies the loader's own check to each; no model is made. What only a load
finds out, by handing two tokens through the layers, is kept by hand below.
"""

import json
import sys
from pathlib import Path

import transformers
from transformers import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from engine.checkpoints.architectures import REASONS, TABLE
from engine.config.specs import InvalidInput
from engine.models.config import refuse_unsupported

# Tried with transformers 5.23: an indexer tells their layers which tokens to look at.
SPARSE = "axk2 deepseek_v32 dots3_note dots3_note_text glm_moe_dsa hy_v4"
# They keep states that transformers' common cache does not have, or attend in layers that go by no number of their own.
MIXED = """
deepseek_v4 falcon_mamba glm5_next hrm_text inkling2_text inkling_text mamba mamba2 minimax mllama qwen4_exp
qwen4_exp_text recurrent_gemma rwkv xlstm zamba zamba2 zaya
"""
PROBED = {"sparse": SPARSE.split(), "mixed": MIXED.split()}


def verdicts() -> dict[str, list[str]]:
    """Each reason's model types, sorted; "served" are those that no check refuses."""
    found: dict[str, list[str]] = {"served": []} | {reason: [] for reason in REASONS}
    by_hand = {kind: reason for reason, kinds in PROBED.items() for kind in kinds}
    for kind in sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES):
        found[_reason(kind) or by_hand.get(kind, "served")].append(kind)
    return {reason: kinds for reason, kinds in found.items() if kinds}


def _reason(kind: str) -> str:
    config_class = CONFIG_MAPPING[kind]
    try:
        refuse_unsupported(config_class.__new__(config_class))  # the check reads the class alone
    except InvalidInput as error:
        return next(reason for reason, words in REASONS.items() if words.split(",")[0].split(";")[0] in str(error))
    return ""


def main() -> None:
    refused = verdicts()
    names = refused.pop("served")
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else TABLE
    table = {"transformers": transformers.__version__, "served": names, "refused": refused}
    target.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")
    print(f"{target}: {len(names)} served, {sum(map(len, refused.values()))} refused")


if __name__ == "__main__":
    main()
