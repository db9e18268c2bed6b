"""Engines that live in an environment of their own, as peers of the bench: a worker process there runs each case when
it is told to, and does nothing in between."""

import json
import subprocess
import tempfile
from pathlib import Path

from transformers import LlamaForCausalLM

from engine.bench.bars import no_bars
from engine.bench.subject import Case
from engine.config.specs import InvalidInput

WORKERS = {name: Path(__file__).with_name(f"{name}_worker.py") for name in ("vllm", "llamacpp")}
NAMES = {"vllm": "vLLM, its CPU build", "llamacpp": "llama.cpp, batched by its caller"}


class OutsidePeer:
    """`kind` is one of WORKERS, `python` the interpreter of the environment that has it. Raises InvalidInput for what
    is neither; RuntimeError with its last words where it fails."""

    def __init__(self, kind: str, python: str) -> None:
        if kind not in WORKERS:
            raise InvalidInput(f"--peer {kind}={python}: the peers are {', '.join(WORKERS)}")
        if not Path(python).is_file():
            raise InvalidInput(f"--peer {kind}={python}: no Python is there; name that of an environment with {kind}")
        self.kind, self.python = kind, python
        self.name = NAMES[kind]
        self.settings = ""
        self._process: subprocess.Popen[str] | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    @classmethod
    def parse(cls, text: str) -> "OutsidePeer":
        """From `vllm=/path/to/python`."""
        kind, _, python = text.partition("=")
        return cls(kind, python)

    def start(self, module: LlamaForCausalLM, rows: int, context: int) -> None:
        """Saves the model for it, and returns once it has loaded it: a minute where it compiles. `rows` run at once."""
        self._folder = tempfile.TemporaryDirectory()
        with no_bars():
            module.save_pretrained(self._folder.name)
        dtype = str(module.dtype).removeprefix("torch.")
        order = [self.python, str(WORKERS[self.kind]), self._folder.name, dtype, str(rows), str(context)]
        log = open(Path(self._folder.name) / "log", "w")  # noqa: SIM115  (the process holds it)
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(order, stdin=pipe, stdout=pipe, stderr=log, text=True)
        log.close()
        self.settings = str(self._answer()["settings"])

    def seconds(self, case: Case) -> float:
        """Runs the whole case; the seconds from its first prompt in to its last token out."""
        assert self._process is not None
        assert self._process.stdin is not None
        print(
            json.dumps({"prompts": case.prompts, "new_tokens": case.new_tokens}), file=self._process.stdin, flush=True
        )
        answer = self._answer()
        assert answer["tokens"] == case.output_tokens, f"{self.name} gave {answer['tokens']} of {case.output_tokens}"
        return float(answer["seconds"])

    def _answer(self) -> dict[str, str | int | float]:
        """The next line of JSON; it may print other things."""
        assert self._process is not None
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                answer: dict[str, str | int | float] = json.loads(line)
                return answer
        assert self._folder is not None
        log = (Path(self._folder.name) / "log").read_text(errors="replace").strip()
        raise RuntimeError(f"{self.name} ended: {log.splitlines()[-1] if log else 'it said nothing'}")

    def close(self) -> None:
        """Ends it."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
        if self._folder is not None:
            self._folder.cleanup()
