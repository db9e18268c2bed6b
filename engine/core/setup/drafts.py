"""The models that draft for the engine's own."""

from __future__ import annotations

from dataclasses import replace

from engine.config.specs import EngineConfig, InvalidInput, ModelSpec
from engine.models.loading import LoadedModel, load
from engine.models.weights import Reporter

KNOWN = {
    "demo": ModelSpec("demo-draft"),
    "demo-moe": ModelSpec("demo-draft"),
    "demo-mla": ModelSpec("demo-draft"),
}  # what drafts for a model that says nothing of it


class Drafts:
    """Loads the draft that a config asks for, and keeps it while configs ask for the same."""

    def __init__(self, model: LoadedModel) -> None:
        self._model = model
        self._kept: tuple[ModelSpec, LoadedModel] | None = None

    def asked(self, config: EngineConfig) -> ModelSpec | None:
        """None where none is asked for. Raises InvalidInput for one that is unknown."""
        return self._spec(config.draft) if config.speculation == "draft" else None

    def __call__(self, spec: ModelSpec | None, say: Reporter) -> LoadedModel | None:
        """The draft that was `asked` for. Raises InvalidInput for one that has another vocabulary."""
        if spec is None:
            self._kept = None
            return None
        if self._kept is None or self._kept[0] != spec:
            self._kept = None  # before another takes memory
            say("loading the draft model")
            draft = load(spec, cancelled=say.cancelled)
            self._check(spec, draft)
            self._kept = spec, draft
        return self._kept[1]

    def _spec(self, asked: ModelSpec | None) -> ModelSpec:
        """On the model's device, and in its dtype where nothing else is said."""
        source = self._model.card.source
        spec = asked or KNOWN.get(source)
        if spec is None:
            raise InvalidInput(
                f"draft=None: no draft is known for {source}; name a smaller model that has its vocabulary, "
                'or use speculation="ngram", which needs none'
            )
        device = str(self._model.device)
        if spec.device not in ("auto", self._model.device.type, device):
            raise InvalidInput(f"draft on device={spec.device!r}: it must be where the model is, on {device}")
        dtype = self._model.card.dtype if spec.dtype == "auto" else spec.dtype
        return replace(spec, device=device, dtype=dtype)

    def _check(self, spec: ModelSpec, draft: LoadedModel) -> None:
        if draft.card.state_layers:
            raise InvalidInput(
                f"draft={spec.source!r}: layers of it keep a state, in which what is not taken would stay; name a "
                "model whose layers all attend"
            )
        ours, theirs = self._model.tokenizer.get_vocab(), draft.tokenizer.get_vocab()
        if ours != theirs:
            raise InvalidInput(
                f"draft {spec.source}: its vocabulary ({len(theirs):,} tokens) is not that of "
                f"{self._model.card.source} ({len(ours):,}), so its tokens mean other texts; choose a model of the "
                "same family"
            )
