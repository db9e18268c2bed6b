"""Every choice a person makes, checked: models, engine, sampling, quantization schemes. No torch."""

from engine.config.adapters import adapter_name, adapter_source
from engine.config.checks import check, known_keys, number, one_of, text, whole
from engine.config.files import read_file
from engine.config.live_budget import SHARED_BUDGET_MODES, BudgetChanges, LiveBudget
from engine.config.parallel import BACKENDS, MOST_RANKS, Parallel, check_dividing, dividing
from engine.config.sampling_params import MOST_SAMPLES, SamplingParams
from engine.config.schemes import OF_LAYERS, SCHEMES, STORED, Quantization, missing, quantized_bytes
from engine.config.specs import (
    ADMISSIONS,
    COLOCATED_MODES,
    DELIVERIES,
    DTYPES,
    KV_DTYPES,
    MODES,
    MOST_SPECULATED,
    PAGED_MODES,
    PREEMPTIONS,
    QUANTIZATIONS,
    SOLITARY_MODES,
    SPECULATIONS,
    TARGET_MODES,
    EngineConfig,
    InvalidInput,
    ModelSpec,
)
from engine.config.submission import Message, Prompt, Submission
