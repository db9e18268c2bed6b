"""The fields of a `SamplingParams`, each with its control and what it does."""

from functools import partial

from app.sampling.typed_texts import as_typed, bias_as_typed, typed_bias, typed_texts
from app.ui.controls import DropDown, Number, SliderValue, Switch, line_edit
from app.ui.forms.form import Field
from engine.config import MOST_SAMPLES, PAGED_MODES

MOST_ALTERNATIVES = 20
TEMPERATURE = "0 is greedy: always the likeliest token"
TOP_P = "Draw from the likeliest tokens that make up this share; 1 is off"
MOST_TOKENS = "How many new tokens a request may have"
MIN_P = "Drop tokens below this share of the likeliest one's probability; 0 is off"
PENALTY = "Divides the logits of tokens already seen; 1 is off"
TOP_K = "Draw from the k likeliest tokens; 0 is off"
SEED = "A fixed seed gives the same answers again; request i of a batch takes seed + i"
STOP = 'End when one of these appears: The end, \\n\\n - or a JSON list, ["a, b", "c"]'
FREQUENCY = "Taken from a token's logit for each time that the answer has it; 0 is off"
PRESENCE = "Taken once from the logit of every token that the answer has; 0 is off"
LEAST = "So many tokens before an answer may end"
BAD_WORDS = "Never say these: fox, the old bridge - or a JSON list"
BIAS = "Added to the logits of tokens, by their ids: 42 = -5, 7 = 2.5"
ENDLESS = "Go on past the model's own end until max tokens"
SAMPLES = "So many answers to each prompt, which they share in the KV cache"
BEAMS = "Search with so many beams at once: so many answers, the most probable first, with their scores; 1 is off"
LENGTH_PENALTY = "A beam's score is its log-probability over its length to the power of this; more favours longer texts"
EARLY_STOPPING = (
    "When a search is over, once as many texts are finished as there are beams: as soon as they are; when what lives "
    "scores less; or when it could not score more at any length"
)
ENDINGS = (("likely best", "false"), ("first found", "true"), ("surely best", "never"))
RULES = ("frequency_penalty", "presence_penalty", "min_tokens", "bad_words", "logit_bias")
DRAWING = ("temperature", "top_p", "min_p", "top_k", "seed")
IDLE_IN_BEAMS = (*DRAWING, "repetition_penalty", "n", *RULES)  # the model's own probabilities are weighed
OF_BEAMS = ("length_penalty", "early_stopping")
ALTERNATIVES = "Record so many of the likeliest tokens beside each token that is given, with their probabilities"


def sampling_fields() -> list[Field]:
    temperature = SliderValue("sampling_temperature", "Temperature", 0, 2, 0.8)
    top_p = SliderValue("sampling_top_p", "Top-p", 0.01, 1, 0.95, step=0.01)
    tokens = SliderValue("sampling_max_tokens", "Max tokens", 1, 4096, 200, step=1, logarithmic=True)
    min_p = SliderValue("sampling_min_p", "Min-p", 0, 0.5, 0, step=0.01)
    penalty = SliderValue("sampling_repetition_penalty", "Repetition penalty", 0.5, 2, 1)
    frequency = SliderValue("sampling_frequency_penalty", "Frequency penalty", -2, 2, 0)
    presence = SliderValue("sampling_presence_penalty", "Presence penalty", -2, 2, 0)
    least = Number("sampling_min_tokens", 0, 4096, 0, least="off")
    bad_words = line_edit("sampling_bad_words", hint="none")
    bias = line_edit("sampling_logit_bias", hint="none")
    top_k = Number("sampling_top_k", 0, 1_000_000, 0, least="off")
    seed = Number("sampling_seed", -1, 2**31 - 1, -1, least="random")
    seed.setGroupSeparatorShown(False)
    stop = line_edit("sampling_stop", hint="none")
    endless = Switch("sampling_ignore_eos", "Ignore end of text")
    alternatives = Number("sampling_logprobs", 0, MOST_ALTERNATIVES, 0, least="off")
    samples = Number("sampling_n", 1, MOST_SAMPLES, 1)
    beams = Number("sampling_beam_width", 1, MOST_SAMPLES, 1, least="off")
    penalty_of_length = SliderValue("sampling_length_penalty", "Length penalty", -2, 4, 1)
    stopping = DropDown("sampling_early_stopping", ENDINGS, "When a beam search is over")
    return [
        Field("temperature", "Temperature", temperature, TEMPERATURE, _rounded),
        Field("top_p", "Top-p", top_p, TOP_P, _rounded),
        Field("max_tokens", "Max tokens", tokens, MOST_TOKENS, round),
        Field("min_p", "Min-p", min_p, MIN_P, _rounded),
        Field("repetition_penalty", "Repetition", penalty, PENALTY, _rounded),
        Field("frequency_penalty", "Frequency", frequency, FREQUENCY, _rounded),
        Field("presence_penalty", "Presence", presence, PRESENCE, _rounded),
        Field("top_k", "Top-k", top_k, TOP_K),
        Field("seed", "Seed", seed, SEED, lambda n: n if n >= 0 else None, lambda seed: -1 if seed is None else seed),
        Field("stop", "Stop at", stop, STOP, partial(typed_texts, name="stop"), as_typed),
        Field("min_tokens", "Min tokens", least, LEAST),
        Field("bad_words", "Bad words", bad_words, BAD_WORDS, partial(typed_texts, name="bad_words"), as_typed),
        Field("logit_bias", "Logit bias", bias, BIAS, typed_bias, bias_as_typed),
        Field("ignore_eos", "Ignore EOS", endless, ENDLESS),
        Field("logprobs", "Alternatives", alternatives, ALTERNATIVES),
        Field("n", "Samples", samples, SAMPLES, modes=PAGED_MODES, idle=1),
        Field("beam_width", "Beams", beams, BEAMS, modes=PAGED_MODES, idle=1),
        Field("length_penalty", "By length", penalty_of_length, LENGTH_PENALTY, _rounded),
        Field("early_stopping", "Ends when", stopping, EARLY_STOPPING, _stopping, lambda value: str(value).lower()),
    ]


def _stopping(text: str) -> bool | str:
    return text if text == "never" else text == "true"


def _rounded(value: float) -> float:
    return round(value, 4)
