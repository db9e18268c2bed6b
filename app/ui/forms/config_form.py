"""The settings of a batching mode: those that matter to the chosen one are shown, the others keep their values."""

from dataclasses import replace

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QWidget

from app.language import tr
from app.ui.controls import Amount, DropDown, Number, PowerOfTwo, Switch, line_edit
from app.ui.forms.form import Field, Form
from app.ui.labels import Note
from app.ui.layout.boxes import column
from app.words import admission_words, mode_words, sentence
from engine import EngineConfig, ModelSpec
from engine.config import (
    COLOCATED_MODES,
    MODES,
    MOST_SPECULATED,
    PAGED_MODES,
    SHARED_BUDGET_MODES,
    SOLITARY_MODES,
    TARGET_MODES,
)
from engine.core import nvidia_driver

GATHERED = ("static", "dynamic")  # batches that leave together
JOINING = ("continuous-padded", "continuous", "chunked")  # requests join at every so many steps
SHARED = tuple(mode for mode in MODES if mode not in SOLITARY_MODES)
POOLED = tuple(mode for mode in MODES if mode != "recompute")
PREEMPTIONS = ((tr("recompute"), "recompute"), (tr("swap"), "swap"), (tr("whichever is quicker"), "auto"))
SHORT_ADMISSIONS = (
    *((tr("as they came"), "fcfs"), (tr("shortest first"), "sjf")),
    *((tr("longest prefix first"), "lpm"), (tr("by priority"), "priority")),
    (tr("fair shares"), "fair"),
)
MIXED = ((tr("share steps"), True), (tr("run one at a time"), False))
FORGOTTEN = ((tr("are forgotten"), False), (tr("go to host memory"), True))
DELIVERY = ((tr("as it comes"), "stream"), (tr("when the batch is done"), "batch"))
PRECISIONS = ((tr("the model's"), "auto"), ("int8", "int8"), ("fp8", "fp8"))
MEGABYTE = 1024 * 1024
TOKENS = " " + tr("tokens")  # behind a number
MODE = tr("Who may join a step, who may leave, and what is computed together")
RUNNING = tr("How many requests may run at once")
WAIT = tr("A batch that is not full starts when its first request has waited so long")
JOIN = tr("At every step, or only at every second, third …")
BUDGET = tr("How many tokens one step may compute, prompts and new tokens together")
TEXT = tr("Token by token, or held back until the whole batch is done")
PREFIX = tr("Prompts that begin alike share their blocks")
OFFLOADING = tr(
    "Where KV blocks run out, cached prefixes make room: they are computed again later, or kept in host memory and "
    "copied back when a prompt begins with them"
)
SPECULATION = tr("Several drafted tokens are verified in one step; what is said stays the same")
SPECULATE = ((tr("off"), None), (tr("n-grams of the text"), "ngram"), (tr("draft model"), "draft"))
SPECULATED = tr("How many tokens are drafted for each row; automatic: as many as are likely enough to be kept")
DRAFT = tr("A smaller model with the same vocabulary: demo-draft, a folder or a hub id")
GRAPHS = tr("Decode steps are recorded at load and replayed by one call, not computed kernel by kernel")
PRECISION = tr("K and V in a byte a value hold two to four times the tokens in the same memory, and are less exact")
WINDOW = tr(
    "Of an answer that goes on, only its newest tokens and the sinks stay in the KV cache: it never grows beyond them"
)
SINKS = tr("How many tokens of the beginning stay too, by whole blocks: many heads rest their attention there")
BLOCK = tr("How many tokens one KV block holds: a power of two")
PREEMPTION = tr(
    "Where KV blocks run out, the request that came last makes way: its tokens are computed again later, or copied to "
    "host memory and back"
)
ADMISSION = tr(
    "Who of those that wait joins next. A job is its prompt and the most tokens that its answer may have. Unless the "
    "first come is first served, one may wait for as long as others come."
)
ADAPTERS = tr(
    "Requests of several adapters share each step; or all that run are of one, as where it is merged into the weights, "
    "and others wait until they are done"
)
TARGET = tr(
    "How long the gap between an answer's tokens may be, in 19 of 20 cases: a step takes in as much of prompts as "
    "leaves it that short, and who would make it longer waits"
)
MEMORY = tr("The size of the KV cache; automatic takes a share of what is free")


def devices() -> list[tuple[str, object]]:
    """Where a model may run, as choices of a list."""
    found: list[tuple[str, object]] = [(tr("automatic"), "auto"), ("CPU", "cpu")]
    if nvidia_driver():
        found.append((tr("GPU (CUDA)"), "cuda"))
    return found


def mode_fields(name: str) -> list[Field]:
    mode = DropDown(f"{name}_mode", [(mode, mode) for mode in MODES])
    for i, each in enumerate(MODES):
        mode.setItemData(i, f"{sentence(mode_words(each))}.", Qt.ItemDataRole.ToolTipRole)
    running = Number(f"{name}_running", 1, 4096, 64)
    wait = Number(f"{name}_wait", 0, 3_600_000, 200, " ms", 50)
    join = Number(f"{name}_join", 1, 10_000, 1, least=tr("at every step"))
    before, _, after = tr("every {n} steps").partition("{n}")
    join.setPrefix(before)
    join.setSuffix(after)
    budget = Number(f"{name}_budget", 1, 1_048_576, 2048, TOKENS, 256)
    target = Amount(f"{name}_target_itl", 3_600_000, " ms", 5, least=tr("none"))
    delivery, prefix = DropDown(f"{name}_delivery", DELIVERY), Switch(f"{name}_prefix", tr("Prefix caching"))
    offloading = DropDown(f"{name}_offload_prefixes", FORGOTTEN)
    graphs = Switch(f"{name}_graphs", tr("Decode graphs"))
    speculation = DropDown(f"{name}_speculation", SPECULATE)
    speculated = Number(f"{name}_speculated", 0, MOST_SPECULATED, 0, TOKENS, least=tr("automatic"))
    draft = line_edit(f"{name}_draft", tr("Draft model"), tr("the model's own"))
    preemption = DropDown(f"{name}_preemption", PREEMPTIONS)
    precision = DropDown(f"{name}_kv_dtype", PRECISIONS)
    window = Number(f"{name}_kv_window", 0, 1_048_576, 0, TOKENS, 64, least=tr("keeps all"))
    sinks = Number(f"{name}_kv_sinks", 0, 1_048_576, 4, TOKENS, least=tr("none"))
    admission, mixed = DropDown(f"{name}_admission", SHORT_ADMISSIONS), DropDown(f"{name}_mixed_adapters", MIXED)
    for i, (_, order) in enumerate(SHORT_ADMISSIONS):
        admission.setItemData(i, f"{sentence(admission_words(order))}.", Qt.ItemDataRole.ToolTipRole)
    return [
        Field("mode", tr("Mode"), mode, MODE),
        Field("max_running", tr("Running"), running, RUNNING, modes=SHARED),
        Field(
            "longest_wait",
            tr("Waits at most"),
            wait,
            WAIT,
            lambda ms: ms / 1000,
            lambda s: round(1000 * s),
            ("dynamic",),
        ),
        Field("join_every", tr("New join"), join, JOIN, modes=JOINING),
        Field("token_budget", tr("Budget"), budget, BUDGET, modes=SHARED_BUDGET_MODES, idle=0),
        Field("target_itl", tr("Target ITL"), target, TARGET, _seconds, _ms, TARGET_MODES, None),
        Field("delivery", tr("Text comes"), delivery, TEXT, modes=GATHERED, idle="stream"),
        Field("prefix_caching", tr("Prefix caching"), prefix, PREFIX, modes=PAGED_MODES, idle=False),
        Field("offload_prefixes", tr("Old prefixes"), offloading, OFFLOADING, modes=COLOCATED_MODES, idle=False),
        Field("admission", tr("Admission"), admission, ADMISSION),
        Field("mixed_adapters", tr("Adapters"), mixed, ADAPTERS, modes=PAGED_MODES, idle=True),
        Field("preemption", tr("Preempts by"), preemption, PREEMPTION, modes=COLOCATED_MODES, idle="recompute"),
        Field("cuda_graphs", tr("Decode graphs"), graphs, GRAPHS, modes=PAGED_MODES, idle=True),
        Field("kv_dtype", tr("KV precision"), precision, PRECISION, modes=PAGED_MODES, idle="auto"),
        Field("kv_window", tr("KV window"), window, WINDOW, _window, _size, PAGED_MODES, None),
        Field("kv_sinks", tr("Sinks"), sinks, SINKS, modes=PAGED_MODES, idle=EngineConfig().kv_sinks),
        Field("speculation", tr("Speculation"), speculation, SPECULATION, modes=PAGED_MODES, idle=None),
        Field("speculated", tr("Drafted"), speculated, SPECULATED, _speculated, _count, PAGED_MODES),
        Field("draft", tr("Draft"), draft, DRAFT, _draft, _source, PAGED_MODES),
    ]


def pool_fields(name: str) -> list[Field]:
    """What the lanes of a race have alike."""
    block = PowerOfTwo(f"{name}_block", 1, 256, 16, TOKENS)
    memory = Number(f"{name}_kv_memory", 0, 16_777_216, 0, " MB", 64, least=tr("automatic"))
    return [
        Field("block_size", tr("Block"), block, BLOCK, modes=PAGED_MODES),
        Field("kv_memory", tr("KV memory"), memory, MEMORY, _bytes, _megabytes, POOLED),
    ]


BACK = ("prefix_caching", "preemption", "speculation")  # what a model whose layers keep a state does not do


class ConfigForm(QWidget):
    """Edits mode, batch size and what goes with the mode. `name` begins the object names of its controls."""

    edited = Signal()

    def __init__(self, name: str, *, pool: bool = False, spacing: int = 8) -> None:
        super().__init__()
        self._form = Form([*mode_fields(name), *(pool_fields(name) if pool else ())], self)
        self.sentence = Note(f"{name}_sentence")
        first, *others = self._form.rows.values()
        self.setLayout(column(first, self.sentence, *others, spacing=spacing))
        self._form.edited.connect(self._on_edited)
        self._shown: list[object] = []  # by what the rows are those that they are
        self._admission = ""  # as it was before it is edited
        self._adapted = self._states = False
        self.set_config(EngineConfig())

    def __getitem__(self, name: str) -> Field:
        return self._form[name]

    def config(self, rest: EngineConfig) -> EngineConfig:
        """The settings as chosen, the others taken from `rest`. Raises InvalidInput when they do not go together."""
        chosen = self._form.values(self["mode"].get())
        chosen["token_budget"] = chosen["token_budget"] or max(self["token_budget"].get(), chosen["max_running"])
        chosen["draft"] = chosen["draft"] if chosen["speculation"] == "draft" else None
        chosen["offload_prefixes"] &= chosen["prefix_caching"]
        config = replace(rest, swap_memory=None, **chosen)
        return replace(config, swap_memory=rest.swap_memory) if config.uses_host else config

    def set_config(self, config: EngineConfig) -> None:
        """Shows these settings. What the config's mode has no use for keeps its value, as does what becomes of old
        prefixes where none are cached."""
        offloading = self["offload_prefixes"].get()
        self._form.show(config, config.mode)
        if not config.prefix_caching:
            blocked = self._form.blockSignals(True)
            self["offload_prefixes"].set(offloading)
            self._form.blockSignals(blocked)
        self._admission = config.admission
        self._show_rows()

    def offer_adapters(self, adapted: bool) -> None:
        """Whether the model has any: else nothing is asked of them."""
        self._adapted = adapted
        self._show_rows()

    def offer_going_back(self, states: bool) -> None:
        """Whether layers of the model keep `states`: then nothing is asked of what would have them go back."""
        self._states = states
        self._show_rows()

    def _show_rows(self) -> None:
        mode = self["mode"].get()
        drafts = self["speculation"].get()
        hidden = undrafted(drafts)
        if not self._adapted and self["mixed_adapters"].get():
            hidden = hidden | {"mixed_adapters"}
        if not self["prefix_caching"].get():
            hidden = hidden | {"offload_prefixes"}
        if self._states:
            hidden = hidden | {name for name in BACK if self[name].get() == self[name].idle}
        if not self["kv_window"].get():
            hidden = hidden | {"kv_sinks"}
        for name, row in self._form.rows.items():
            row.setVisible(self[name].counts(mode) and name not in hidden)
        self._shown = self._deciding()
        admission = self["admission"].control
        assert isinstance(admission, DropDown)
        admission.offer("lpm", mode in PAGED_MODES)
        self._form.rows["max_running"].label.setText(tr("Batch size") if mode in GATHERED else tr("Running"))
        self.sentence.say(f"{sentence(mode_words(mode))}.")

    def _deciding(self) -> list[object]:
        """By which it is decided what is shown."""
        return [*(self[name].get() for name in ("mode", "speculation", "prefix_caching")), not self["kv_window"].get()]

    def _on_edited(self) -> None:
        if self._deciding() != self._shown:
            self._show_rows()
        if self._agrees():
            self.edited.emit()

    def _agrees(self) -> bool:
        """Whether admission and prefix caching go together. Where not, what was edited stays as chosen and the other is
        changed: to look for cached prefixes switches their caching on, and ends without it."""
        before, self._admission = self._admission, self["admission"].get()
        paged = self["mode"].get() in PAGED_MODES
        if self._admission != "lpm" or (paged and self["prefix_caching"].get()):
            return True
        if paged and before != "lpm":
            self["prefix_caching"].set(True)
        else:
            self["admission"].set("fcfs")
        return False


def undrafted(speculation: str | None) -> set[str]:
    """The fields that do not matter to this way of drafting."""
    return {"speculated", "draft"} if speculation is None else set() if speculation == "draft" else {"draft"}


def _speculated(count: int) -> int | str:
    return count or "auto"


def _count(speculated: int | str) -> int:
    return 0 if speculated == "auto" else int(speculated)


def _window(tokens: int) -> int | None:
    return tokens or None


def _size(window: int | None) -> int:
    return window or 0


def _seconds(ms: float) -> float | None:
    return ms / 1000 or None


def _ms(seconds: float | None) -> float:
    return 1000 * (seconds or 0)


def _draft(source: str) -> ModelSpec | None:
    return ModelSpec(source.strip()) if source.strip() else None


def _source(draft: ModelSpec | None) -> str:
    return draft.source if draft is not None else ""


def _bytes(megabytes: int) -> int | None:
    return megabytes * MEGABYTE or None


def _megabytes(count: int | None) -> int:
    return 0 if count is None else max(1, count // MEGABYTE)
