"""What OpenTelemetry's GenAI conventions call things, and Langfuse: both still move, so that no library's constants are
taken."""

PROVIDER = "batchscope"
CHAT, COMPLETION = "chat", "text_completion"  # operations

OPERATION = "gen_ai.operation.name"
PROVIDER_NAME = "gen_ai.provider.name"
REQUEST_MODEL = "gen_ai.request.model"
RESPONSE_MODEL = "gen_ai.response.model"
RESPONSE_ID = "gen_ai.response.id"
FINISH_REASONS = "gen_ai.response.finish_reasons"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
CACHED_TOKENS = "gen_ai.usage.cache_read.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
REQUEST = {  # by the name that SamplingParams has for it
    "max_tokens": "gen_ai.request.max_tokens",
    "temperature": "gen_ai.request.temperature",
    "top_p": "gen_ai.request.top_p",
    "top_k": "gen_ai.request.top_k",
    "seed": "gen_ai.request.seed",
    "n": "gen_ai.request.choice.count",
    "frequency_penalty": "gen_ai.request.frequency_penalty",
    "presence_penalty": "gen_ai.request.presence_penalty",
}
STOP = "gen_ai.request.stop_sequences"  # text
INPUT = "gen_ai.input.messages"  # text
OUTPUT = "gen_ai.output.messages"  # text

ERROR_TYPE = "error.type"
STATUS = "http.response.status_code"
ROUTE = "http.route"
USER = "user.id"  # the key's name

LANGFUSE_TYPE = "langfuse.observation.type"
LANGFUSE_FIRST = "langfuse.observation.completion_start_time"
LANGFUSE_INPUT = "langfuse.observation.input"  # text
LANGFUSE_OUTPUT = "langfuse.observation.output"  # text

DURATION = "gen_ai.server.request.duration"
TPOT = "gen_ai.server.time_per_output_token"
TTFT = "gen_ai.server.time_to_first_token"
DURATION_BUCKETS = [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92]
TPOT_BUCKETS = [0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5]
TTFT_BUCKETS = [0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0]
