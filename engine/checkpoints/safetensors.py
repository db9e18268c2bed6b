"""The safetensors of a model folder: which they are, and what their headers say. No torch, and no weights read."""

import struct
from pathlib import Path
from typing import Any

from engine.config.checks import shown
from engine.config.files import parse_json, read_file
from engine.config.specs import InvalidInput

INDEX = "model.safetensors.index.json"


def read_json(path: Path) -> Any:
    """A JSON file. Raises InvalidInput for one that cannot be read."""
    try:
        return parse_json(read_file(path).decode())
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{path} cannot be read: {error}; fetch the model again") from error


def weight_files(folder: Path) -> list[Path]:
    """The safetensors that a load reads: model.safetensors, or the shards that the index names. Raises InvalidInput for
    a shard that is missing, and for shards without their index."""
    whole, index = folder / "model.safetensors", folder / INDEX
    if whole.is_file():
        return [whole]
    if index.is_file():
        there = {path.name for path in folder.iterdir() if path.is_file()}
        return [folder / name for name in index_files(read_json(index), index, there)]
    others = sorted(folder.glob("*.safetensors"))
    if others:
        raise InvalidInput(
            f"{folder} has {others[0].name} but neither model.safetensors nor {INDEX}, which says what the shards "
            "hold: fetch the model again"
        )
    return []


def index_files(index: Any, path: object, there: set[str] | None = None) -> list[str]:
    """The shards that an index (its JSON) names, in order; `there` are the files that exist. Raises InvalidInput for a
    broken index and for a shard that is missing; `path` is what the message calls the index."""
    placed = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(placed, dict) or not placed or not all(isinstance(name, str) for name in placed.values()):
        raise InvalidInput(f"{path} does not say which file holds which tensor (weight_map): fetch the model again")
    names = sorted(set(placed.values()))
    gone = [name for name in names if there is not None and name not in there]
    if gone:
        raise InvalidInput(
            f"{path} names {len(names)} files and {len(gone)} of them {'is' if len(gone) == 1 else 'are'} missing "
            f"({gone[0]}): the download is incomplete, fetch the model again"
        )
    return names


def read_headers(files: list[Path]) -> dict[str, tuple[tuple[int, ...], str]]:
    """Shape and dtype of every tensor, from the headers alone. Raises InvalidInput for a file that is cut short."""
    found: dict[str, tuple[tuple[int, ...], str]] = {}
    for path in files:
        try:
            with path.open("rb") as file:
                (length,) = struct.unpack("<Q", file.read(8))
                if length > 100_000_000:
                    raise ValueError(f"a header of {length} bytes")
                header = parse_json(file.read(length))
            header.pop("__metadata__", None)
            end = 8 + length
            for name, entry in header.items():
                shape = tuple(entry["shape"])
                if not all(isinstance(size, int) and size >= 0 for size in shape):
                    raise ValueError(f"{name[:80]} has the shape {shown(list(shape))}")
                found[name] = (shape, str(entry["dtype"]))
                end = max(end, 8 + length + int(entry["data_offsets"][1]))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError, struct.error) as error:
            raise InvalidInput(f"{path} is not a safetensors file: {error}; fetch the model again") from error
        if path.stat().st_size < end:
            raise InvalidInput(f"{path} is cut short: {path.stat().st_size:,} of {end:,} bytes; fetch the model again")
    return found
