"""Models: inspected without torch, loaded by transformers, run over the paged KV cache."""

import logging

# transformers imports torchao and bitsandbytes where they are installed. They, and torch, then warn of kernels that are
# not here and of what torch deprecates; bitsandbytes also at each 8-bit product whose inputs are not float16.
for _name in ("bitsandbytes", "torchao", "torch.utils._pytree"):
    logging.getLogger(_name).setLevel(logging.ERROR)
