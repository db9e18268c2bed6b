"""The fields of a `SamplingParams`, each with its control and what it does."""

from functools import partial

from app.language import tr
from app.sampling.typed_texts import as_typed, bias_as_typed, typed_bias, typed_texts
from app.ui.controls import DropDown, Number, SliderValue, Switch, line_edit
from app.ui.forms.adapters import THROUGH, ThroughChoice
from app.ui.forms.form import Field
from engine.config import COLOCATED_MODES, MOST_SAMPLES, PAGED_MODES

MOST_ALTERNATIVES = 20
TEMPERATURE = tr("0 is greedy: always the likeliest token")
TOP_P = tr("Draw from the likeliest tokens that make up this share; 1 is off")
MOST_TOKENS = tr("How many new tokens a request may have")
MIN_P = tr("Drop tokens below this share of the likeliest one's probability; 0 is off")
PENALTY = tr("Divides the logits of tokens already seen; 1 is off")
TOP_K = tr("Draw from the k likeliest tokens; 0 is off")
SEED = tr("A fixed seed gives the same answers again; request i of a batch takes seed + i")
STOP = tr('End when one of these appears: The end, \\n\\n - or a JSON list, ["a, b", "c"]')
FREQUENCY = tr("Taken from a token's logit for each time that the answer has it; 0 is off")
PRESENCE = tr("Taken once from the logit of every token that the answer has; 0 is off")
LEAST = tr("So many tokens before an answer may end")
BAD_WORDS = tr("Never say these: fox, the old bridge - or a JSON list")
BIAS = tr("Added to the logits of tokens, by their ids: 42 = -5, 7 = 2.5")
ENDLESS = tr("Go on past the model's own end until max tokens")
SAMPLES = tr("So many answers to each prompt, which they share in the KV cache")
BEAMS = tr("Search with so many beams at once: so many answers, the most probable first, with their scores; 1 is off")
LENGTH_PENALTY = tr(
    "A beam's score is its log-probability over its length to the power of this; more favours longer texts"
)
EARLY_STOPPING = tr(
    "When a search is over, once as many texts are finished as there are beams: as soon as they are; when what lives "
    "scores less; or when it could not score more at any length"
)
ENDINGS = ((tr("likely best"), "false"), (tr("first found"), "true"), (tr("surely best"), "never"))
RULES = ("frequency_penalty", "presence_penalty", "min_tokens", "bad_words", "logit_bias")
DRAWING = ("temperature", "top_p", "min_p", "top_k", "seed")
IDLE_IN_BEAMS = (*DRAWING, "repetition_penalty", "n", "attention", *RULES)  # the model's own probabilities are weighed
OF_BEAMS = ("length_penalty", "early_stopping")
PRIORITY = tr("Who has the lowest number joins first, where requests are admitted by priority")
WATCHED = tr("Note what each token attends to, for the Attention panel; steps with such requests take longer")
ALTERNATIVES = tr("Record so many of the likeliest tokens beside each token that is given, with their probabilities")


def sampling_fields() -> list[Field]:
    temperature = SliderValue("sampling_temperature", tr("Temperature"), 0, 2, 0.8)
    top_p = SliderValue("sampling_top_p", tr("Top-p"), 0.01, 1, 0.95, step=0.01)
    tokens = SliderValue("sampling_max_tokens", tr("Max tokens"), 1, 4096, 200, step=1, logarithmic=True)
    min_p = SliderValue("sampling_min_p", tr("Min-p"), 0, 0.5, 0, step=0.01)
    penalty = SliderValue("sampling_repetition_penalty", tr("Repetition penalty"), 0.5, 2, 1)
    frequency = SliderValue("sampling_frequency_penalty", tr("Frequency penalty"), -2, 2, 0)
    presence = SliderValue("sampling_presence_penalty", tr("Presence penalty"), -2, 2, 0)
    least = Number("sampling_min_tokens", 0, 4096, 0, least=tr("off"))
    bad_words = line_edit("sampling_bad_words", hint=tr("none"))
    bias = line_edit("sampling_logit_bias", hint=tr("none"))
    top_k = Number("sampling_top_k", 0, 1_000_000, 0, least=tr("off"))
    seed = Number("sampling_seed", -1, 2**31 - 1, -1, least=tr("random"))
    seed.setGroupSeparatorShown(False)
    stop = line_edit("sampling_stop", hint=tr("none"))
    endless = Switch("sampling_ignore_eos", tr("Ignore end of text"))
    alternatives = Number("sampling_logprobs", 0, MOST_ALTERNATIVES, 0, least=tr("off"))
    watched = Switch("sampling_attention", tr("Attention"))
    samples = Number("sampling_n", 1, MOST_SAMPLES, 1)
    priority = Number("sampling_priority", -100, 100, 0)
    beams = Number("sampling_beam_width", 1, MOST_SAMPLES, 1, least=tr("off"))
    penalty_of_length = SliderValue("sampling_length_penalty", tr("Length penalty"), -2, 4, 1)
    stopping = DropDown("sampling_early_stopping", ENDINGS, tr("When a beam search is over"))
    return [
        Field("temperature", tr("Temperature"), temperature, TEMPERATURE, _rounded),
        Field("top_p", tr("Top-p"), top_p, TOP_P, _rounded),
        Field("max_tokens", tr("Max tokens"), tokens, MOST_TOKENS, round),
        Field("min_p", tr("Min-p"), min_p, MIN_P, _rounded),
        Field("repetition_penalty", tr("Repetition"), penalty, PENALTY, _rounded),
        Field("frequency_penalty", tr("Frequency"), frequency, FREQUENCY, _rounded),
        Field("presence_penalty", tr("Presence"), presence, PRESENCE, _rounded),
        Field("top_k", tr("Top-k"), top_k, TOP_K),
        Field(
            "seed", tr("Seed"), seed, SEED, lambda n: n if n >= 0 else None, lambda seed: -1 if seed is None else seed
        ),
        Field("stop", tr("Stop at"), stop, STOP, partial(typed_texts, name="stop"), as_typed),
        Field("min_tokens", tr("Min tokens"), least, LEAST),
        Field("bad_words", tr("Bad words"), bad_words, BAD_WORDS, partial(typed_texts, name="bad_words"), as_typed),
        Field("logit_bias", tr("Logit bias"), bias, BIAS, typed_bias, bias_as_typed),
        Field("ignore_eos", tr("Ignore EOS"), endless, ENDLESS),
        Field("logprobs", tr("Alternatives"), alternatives, ALTERNATIVES),
        Field("attention", tr("Attention"), watched, WATCHED),
        Field("priority", tr("Priority"), priority, PRIORITY),
        Field("adapter", tr("Adapter"), ThroughChoice("sampling_adapter"), THROUGH),
        Field("n", tr("Samples"), samples, SAMPLES, modes=PAGED_MODES, idle=1),
        Field("beam_width", tr("Beams"), beams, BEAMS, modes=COLOCATED_MODES, idle=1),
        Field("length_penalty", tr("By length"), penalty_of_length, LENGTH_PENALTY, _rounded),
        Field("early_stopping", tr("Ends when"), stopping, EARLY_STOPPING, _stopping, lambda value: str(value).lower()),
    ]


def _stopping(text: str) -> bool | str:
    return text if text == "never" else text == "true"


def _rounded(value: float) -> float:
    return round(value, 4)
