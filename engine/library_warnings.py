"""Keeps off the terminal what libraries warn of that nobody here can mend.

transformers imports torchao and bitsandbytes where they are installed. They, and torch, then warn of kernels that are
not here and of what torch deprecates; bitsandbytes also at each 8-bit product whose inputs are not float16.
"""

import logging

for _name in ("bitsandbytes", "torchao", "torch.utils._pytree", "transformers.integrations.hub_kernels"):
    logging.getLogger(_name).setLevel(logging.ERROR)
