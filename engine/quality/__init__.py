"""What a quantization costs, and a cache that keeps less, measured; AWQ checkpoints, made."""

from engine.quality.awq_recipe import GROUPS, AwqRecipe, check_recipe, origin_of, quantize_to_awq
from engine.quality.kv_cache import KvCache
from engine.quality.report import DEFAULT_TOKENS, READING, QualityReport, QualityRow, measure_quality, ranked
from engine.quality.texts import TEXTS, read_text, suited_calibration, suited_text
