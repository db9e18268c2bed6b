"""What is on this disk and on the hub, read without torch."""

from engine.checkpoints.adapters import EMBEDDED_ADAPTERS, AdapterInfo, inspect_adapter, with_shipped
from engine.checkpoints.architectures import why_unsupported
from engine.checkpoints.catalog import (
    ModelEntry,
    Place,
    cached_models,
    folder_model,
    forget,
    freed_by,
    local_info,
    shipped_models,
)
from engine.checkpoints.hub import HubModel, download, hub_info, hub_model, search_hub
from engine.checkpoints.hub.cache import cache_folder
from engine.checkpoints.inspect import ModelInfo, inspect_model
