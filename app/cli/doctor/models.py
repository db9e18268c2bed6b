"""The models that are here already."""

from __future__ import annotations

from pathlib import Path

from app.cli.doctor.finding import Finding, Status, missing


def demo_model_finding(folder: Path) -> Finding:
    """The models that travel with Batchscope: folders with a config.json and weights."""
    found = {
        config.parent.name: sum(file.stat().st_size for file in config.parent.glob("*.safetensors"))
        for config in sorted(folder.glob("*/config.json"))
    }
    whole = [f"{name} ({size / 1e6:.1f} MB)" for name, size in found.items() if size]
    if whole:
        return Finding("demo model", Status.OK, ", ".join(whole))
    cost = 'ModelSpec("demo") cannot be loaded; every other model can'
    remedy = "install Batchscope again, or train it: packaging/train_demo_model.py"
    return missing("demo model", f"no model in {folder}", cost, remedy)


def cached_models_finding() -> Finding:
    """What the Hugging Face cache holds already, the largest first; none is no fault."""
    try:
        from huggingface_hub import scan_cache_dir
        from huggingface_hub.errors import CacheNotFound
    except ImportError:
        return Finding("cached models", Status.NOTE, "not known without huggingface_hub")
    try:
        cache = scan_cache_dir()
    except CacheNotFound:
        return Finding("cached models", Status.NOTE, "none: there is no Hugging Face cache yet")
    models = sorted((repo for repo in cache.repos if repo.repo_type == "model"), key=lambda repo: -repo.size_on_disk)
    if not models:
        return Finding("cached models", Status.NOTE, "none in the Hugging Face cache")
    names = ", ".join(f"{repo.repo_id} ({repo.size_on_disk / 1e9:.1f} GB)" for repo in models[:5])
    more = f" and {len(models) - 5} more" if len(models) > 5 else ""
    return Finding("cached models", Status.OK, names + more)
