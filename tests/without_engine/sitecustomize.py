"""Python imports this at its start: what runs models cannot be imported, in this process and in its children."""

import sys

ABSENT = "torch transformers tokenizers safetensors huggingface_hub accelerate bitsandbytes triton pynvml awq torchao"
sys.modules.update(dict.fromkeys(ABSENT.split(), None))  # type: ignore[arg-type]
