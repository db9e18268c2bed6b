"""What the sanitizer leaves alone, each of one parameter of one kernel, and why it harms nothing."""

from __future__ import annotations

# Stores by several programs where the slots of rows are alike. Drafted tokens of one slot are verified together, and
# dummies fill replayed steps: the host sends the next token of such a slot (`DeviceRows.knows`), or nobody reads it.
STORED_BY_SEVERAL = {("pick_kernel", "last_tokens")}

# Such stores to the last block of a cache, the dummies' own: whichever store stays, only dummies read it, and nobody
# reads what they say.
LAST_IS_THE_DUMMIES = {
    (f"{verb}_kv_kernel", f"{of}_{kind}") for verb in ("store", "place") for of in "kv" for kind in ("cache", "scales")
}

# Loads of what nobody has written. `packed_inputs` writes no context of a row without tokens; `row_tiles` multiplies
# what it makes of it by that row's query tiles, of which there are none.
UNWRITTEN = {("plan_splits_kernel", "context_lengths")}

# What a kernel leaves unwritten of a parameter is unspecified, and goes on as a NaN that may be loaded. Tokens of a
# replayed step that are no row's are computed beside the rows' and are read by nobody.
UNSPECIFIED = {("paged_attention_kernel", "out")}
