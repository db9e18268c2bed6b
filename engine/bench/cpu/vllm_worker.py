"""Run by the Python of an environment with vLLM: `vllm_worker.py MODEL DTYPE ROWS CONTEXT`. It answers each line of
JSON with how long its prompts took; it knows nothing of this project."""

import json
import os
import sys
import time

os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # a second process would poll beside the other sides
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")


def main() -> None:
    from vllm import LLM, SamplingParams, __version__  # type: ignore[import-not-found]

    folder, dtype, rows, context = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    llm = LLM(
        folder,
        dtype=dtype,  # its "auto" turns float32 into bfloat16
        skip_tokenizer_init=True,
        max_model_len=context,
        max_num_seqs=rows,
        enable_prefix_caching=False,
        disable_log_stats=True,
    )
    settings = f"{__version__}, {dtype}, its own choice of threads, prefix caching off"
    print(json.dumps({"settings": settings}), flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        prompts = [{"prompt_token_ids": ids} for ids in order["prompts"]]
        params = [
            SamplingParams(temperature=0, ignore_eos=True, max_tokens=new, detokenize=False)
            for new in order["new_tokens"]
        ]
        begun = time.perf_counter()
        outputs = llm.generate(prompts, params, use_tqdm=False)
        seconds = time.perf_counter() - begun
        tokens = sum(len(output.outputs[0].token_ids) for output in outputs)
        print(json.dumps({"seconds": seconds, "tokens": tokens}), flush=True)


if __name__ == "__main__":
    main()
