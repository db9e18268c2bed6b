"""Techniques and architectures on the GPU that is here, by checks that are interpreted elsewhere: the CPU's tokens."""

import pytest
import torch

from tests.engine.gpu_path import RUNS

pytest.importorskip("triton")
if not RUNS:
    pytest.skip("no CUDA device", allow_module_level=True)

from tests.engine.core.triton_path.interpreted_beam_checks import test_beams_are_those_of_the_cpu
from tests.engine.core.triton_path.interpreted_kv_checks import (
    test_layers_that_share_keys_and_values_say_what_they_say_on_the_cpu,
    test_tokens_are_those_of_the_cpu,
)
from tests.engine.core.triton_path.interpreted_prompt_checks import (
    test_a_prompt_is_as_likely_as_the_model_says,
    test_what_tokens_attend_to_is_told,
)
from tests.engine.core.triton_path.interpreted_rules_checks import folder, test_rules_give_the_tokens_of_the_cpu
from tests.engine.core.triton_path.interpreted_swap_checks import (
    test_what_a_cache_forgets_is_seen_no_more,
    test_what_comes_back_is_what_went_out,
    test_what_was_forgotten_comes_back_as_it_was,
)
from tests.engine.core.triton_path.pretended_architecture_checks import (
    test_states_are_changed_by_replayed_steps,
    test_steps_are_captured_and_say_what_the_cpu_says_fused_and_not,
)
from tests.engine.kernels.interpreted.interpreted_states_checks import (
    test_a_convolution_is_the_cpus,
    test_the_delta_rule_is_the_cpus,
)

__all__ = [
    "folder",
    "test_a_convolution_is_the_cpus",
    "test_a_prompt_is_as_likely_as_the_model_says",
    "test_beams_are_those_of_the_cpu",
    "test_layers_that_share_keys_and_values_say_what_they_say_on_the_cpu",
    "test_rules_give_the_tokens_of_the_cpu",
    "test_states_are_changed_by_replayed_steps",
    "test_steps_are_captured_and_say_what_the_cpu_says_fused_and_not",
    "test_the_delta_rule_is_the_cpus",
    "test_tokens_are_those_of_the_cpu",
    "test_what_a_cache_forgets_is_seen_no_more",
    "test_what_comes_back_is_what_went_out",
    "test_what_tokens_attend_to_is_told",
    "test_what_was_forgotten_comes_back_as_it_was",
]
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]
