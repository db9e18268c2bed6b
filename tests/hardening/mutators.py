"""Broken inputs made from whole ones. Every choice is drawn from the given Random, so that a seed is a case."""

import contextlib
import json
import sqlite3
import zipfile
from pathlib import Path
from random import Random
from typing import Any

DEEP: Any = json.loads("[" * 400 + "]" * 400)  # and deeper where it is text
NASTY: tuple[Any, ...] = (
    *(None, True, False, -1, 0, 1, 2, 255, 2**31, 2**63, -(2**63), 10**30, 10**400),
    *(0.5, -1.5, 1e308, float("inf"), float("-inf"), float("nan")),
    *("", " ", "x", "\ud800", "\0", "../../../etc/passwd", "stop", "x" * 70_000),
    *([], {}, [[]], {"": {}}, [None], ["x"], [1, 2, 3], {"a": 1}, DEEP),
)


def broken_bytes(data: bytes, rng: Random) -> bytes:
    """Flipped, cut, repeated, moved, zeroed or made up in a few places."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8, 64))):
        at = rng.randrange(len(out) + 1)
        end = min(len(out), at + rng.choice((1, 1, 2, 4, 16, 300, 5000)))
        match rng.randrange(6):
            case 0:
                out[at:end] = bytes(byte ^ (1 << rng.randrange(8)) for byte in out[at:end])
            case 1:
                del out[at:end]
            case 2:
                out[at:at] = out[at:end]
            case 3:
                out[at:end] = rng.randbytes(end - at)
            case 4:
                out[at:end] = bytes(end - at)
            case _:
                del out[at : len(out) if rng.random() < 0.2 else end]
    return bytes(out)


def broken_json(value: Any, rng: Random) -> Any:
    """One part of it, however deep, is another, is gone, or stands there twice."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(list(value))
        return _changed(dict(value), key, rng)
    if isinstance(value, list) and value and rng.random() < 0.9:
        return _changed(list(value), rng.randrange(len(value)), rng)
    return rng.choice(NASTY)


def _changed(values: Any, key: Any, rng: Random) -> Any:
    match rng.randrange(8):
        case 0:
            del values[key]
        case 1 if isinstance(values, list):
            values.append(values[key])
        case 1:
            values[rng.choice(["", "x", *values])] = values[key]
        case _:
            values[key] = broken_json(values[key], rng)
    return values


def broken_text(text: str, rng: Random) -> bytes:
    """JSON with a part changed, where it is JSON; else with bytes changed."""
    if rng.random() < 0.01:
        return b"[" * 100_000
    if rng.random() < 0.7:
        with contextlib.suppress(ValueError, RecursionError):  # of a text that was broken before
            return _dumped(broken_json(json.loads(text), rng))
    return broken_bytes(text.encode(), rng)


def _dumped(value: Any) -> bytes:
    return json.dumps(value).encode("utf-8", "surrogatepass")


# Runs.


def break_run(path: Path, rng: Random) -> None:
    """Changes a run's file in place: its records mostly, else its tables or its bytes."""
    kind = rng.random()
    if kind < 0.15:
        path.write_bytes(broken_bytes(path.read_bytes(), rng))
    else:
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db, contextlib.suppress(sqlite3.Error):
            (_break_tables if kind < 0.25 else _break_records)(db, rng)


def _break_records(db: sqlite3.Connection, rng: Random) -> None:
    (count,) = db.execute("select count(*) from records").fetchone()
    for _ in range(rng.choice((1, 1, 1, 3))):
        at = 0 if rng.random() < 0.2 else rng.randrange(count)
        kind, data = db.execute("select kind, data from records where seq = ?", (at,)).fetchone() or ("", b"\n")
        head, _, arrays = data.partition(b"\n")
        match rng.randrange(8):
            case 0:
                db.execute("delete from records where seq = ?", (at,))
            case 1:
                other = rng.randrange(count)
                db.execute("update records set seq = -1 where seq = ?", (at,))
                db.execute("update records set seq = ? where seq = ?", (at, other))
                db.execute("update records set seq = ? where seq = -1", (other,))
            case 2:
                db.execute("insert into records values (?, ?, ?)", (count + rng.randrange(9), kind, data))
            case 3 if arrays:
                changed = head + b"\n" + broken_bytes(arrays, rng)
                db.execute("update records set data = ? where seq = ?", (changed, at))
            case 4:
                kinds = ("Step", "Ended", "Header", "Submitted", "Trace", "", 5)
                db.execute("update records set kind = ? where seq = ?", (rng.choice(kinds), at))
            case _:
                with contextlib.suppress(ValueError):
                    changed = _dumped(broken_json(json.loads(head), rng)) + b"\n" + arrays
                    db.execute("update records set data = ? where seq = ?", (changed, at))


VIEWS = (
    "create view records as with recursive n(seq) as (select 0 union all select seq + 1 from n) "
    "select seq, 'Notice' as kind, x'7b7d0a' as data from n",
    "create view records as select 0 as seq, 'Notice' as kind, zeroblob(1900000000) as data",
    "create view records as select seq, kind, randomblob(1000000) as data from other",
)


def _break_tables(db: sqlite3.Connection, rng: Random) -> None:
    match rng.randrange(4):
        case 0:
            db.execute("alter table records rename to other")
            db.execute(rng.choice(VIEWS))
        case 1:
            db.execute("update records set data = zeroblob(?) where seq = 3", (rng.choice((0, 1, 80_000_000)),))
        case 2:
            ways = ("drop table records", "delete from records", "alter table records drop column data")
            db.execute(rng.choice(ways))
        case _:
            db.execute(f"pragma user_version = {rng.choice((0, 3, 99, -1))}")


# Folders and files.

PACKINGS = (zipfile.ZIP_STORED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)


def break_race(path: Path, rng: Random) -> None:
    """Changes a race's file in place: what it says of itself, one of its runs, or its bytes."""
    if rng.random() < 0.2:
        path.write_bytes(broken_bytes(path.read_bytes(), rng))
        return
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    name = "race.json" if rng.random() < 0.8 else rng.choice(list(parts))
    parts[name] = broken_text(parts[name].decode(), rng) if name == "race.json" else broken_bytes(parts[name], rng)
    with zipfile.ZipFile(path, "w", rng.choice(PACKINGS) if rng.random() < 0.2 else zipfile.ZIP_DEFLATED) as archive:
        for each, data in parts.items():
            archive.writestr(each, data)
    if rng.random() < 0.2:
        path.write_bytes(broken_bytes(path.read_bytes(), rng))


def break_folder(folder: Path, rng: Random) -> None:
    """Changes a file or two of a model's folder in place."""
    for _ in range(rng.choice((1, 1, 2))):
        path = rng.choice(sorted(p for p in folder.iterdir() if p.is_file()))
        match rng.randrange(12):
            case 0:
                path.unlink()
                if rng.random() < 0.5:
                    path.mkdir()
            case 1:
                path.write_bytes(b"")
            case _ if path.suffix == ".safetensors":
                path.write_bytes(_broken_weights(path.read_bytes(), rng))
            case _:
                path.write_bytes(broken_text(path.read_text(errors="replace"), rng))
        if not any(p.is_file() for p in folder.iterdir()):
            return


def _broken_weights(data: bytes, rng: Random) -> bytes:
    length = int.from_bytes(data[:8], "little")
    if rng.random() < 0.3 or length > len(data):
        return broken_bytes(data[: 8 + length], rng) + data[8 + length :]
    header = broken_text(data[8 : 8 + length].decode(errors="replace"), rng)
    told = len(header) if rng.random() < 0.8 else rng.choice((0, 1, 2**63, 99_999_999))
    return told.to_bytes(8, "little") + header + data[8 + length :]


def break_workload(path: Path, rng: Random) -> None:
    """Changes a file of prompts or a recipe in place."""
    text = path.read_text()
    if path.suffix == ".jsonl":
        lines = text.splitlines()
        at = rng.randrange(len(lines))
        changed = broken_text(lines[at], rng)
        path.write_bytes(b"\n".join([*(line.encode() for line in lines[:at]), changed]))
    elif path.suffix == ".toml" and rng.random() < 0.6:
        lines = text.splitlines()
        at = rng.randrange(len(lines))
        name, equals, _ = lines[at].partition("=")
        value = rng.choice(NASTY)
        lines[at] = f"{name}{equals} {json.dumps(value)}" if equals else rng.choice(lines)
        path.write_bytes("\n".join(lines).encode("utf-8", "surrogatepass"))
    else:
        path.write_bytes(broken_text(text, rng))
