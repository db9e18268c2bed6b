"""What is sent when: prompts, lengths, arrivals; shipped workloads and files of prompts. No torch."""

from engine.workloads.distributions import ARRIVALS
from engine.workloads.library import (
    PROMPT_FILES,
    WorkloadCard,
    demo_workload,
    list_workloads,
    load_workload,
    read_prompts,
)
from engine.workloads.prompt_files import as_prompt, unwrapped
from engine.workloads.schemas import SCHEMAS, load_schema
from engine.workloads.templates import expand_template, is_unclosed, template_size
from engine.workloads.tokens import counter_for
from engine.workloads.workload import Arrival, Suggestion, Workload
