"""The child's side of the hub: huggingface_hub's client with time limits, and its errors in words. No torch.

These are jobs, run in a child (engine.jobs.job): a search that hangs can be given up, and the addresses, the token and
the offline switch are read afresh from the environment each time, as huggingface_hub reads them at its import.
"""

import json
import re
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any
from urllib.parse import quote

from huggingface_hub import HfApi, ModelInfo, constants, errors, get_token
from huggingface_hub.utils import build_hf_headers, get_session, hf_raise_for_status

from engine.checkpoints.hub import HubModel
from engine.checkpoints.inspect import INDEX
from engine.config.specs import InvalidInput
from engine.jobs.job import Report

TIMEOUT = 15.0  # seconds without a word from the hub
HEADERS_AT_ONCE = 8
NETWORK = ("httpx", "httpx2", "httpcore", "httpcore2", "requests")  # huggingface_hub passes on their errors as they are
TEXTS = re.compile(r"[^/]+\.(json|jinja|model|txt)|README\.md|LICENSE(\.md)?")
CODE = re.compile(r"[^/]+\.py")
SAFETENSORS = re.compile(r"(?!consolidated|adapter_)[^/]+\.safetensors")
PICKLED = re.compile(r"[^/]+\.bin")
SEARCHED = ["downloads", "likes", "gated", "private", "lastModified", "tags", "sha"]


class Unreachable(InvalidInput):
    """The hub does not answer, or not now: what is in the cache may do instead. `wait`: seconds that it asks for."""

    wait = 0.0


def session() -> Any:
    """huggingface_hub's client, which by itself would wait for ever."""
    client = get_session()
    client.timeout = TIMEOUT
    return client


@contextmanager
def in_words(id: str = "", revision: str | None = None) -> Iterator[None]:
    """Turns what the client raises into InvalidInput, Unreachable where it is the network or the hub."""
    try:
        yield
    except InvalidInput:
        raise
    except Exception as error:
        told = told_of(error, id, revision)
        if told is None:
            raise
        raise told from error


def told_of(error: Exception, id: str, revision: str | None = None) -> InvalidInput | None:
    """What a person can do about an error of the client; None for one that is none of its."""
    log_in = "log in with `hf auth login`, or set HF_TOKEN"
    match error:
        case errors.OfflineModeIsEnabled():
            return Unreachable(
                "HF_HUB_OFFLINE is set, so the hub is not asked: unset it, or choose a model that is on this machine"
            )
        case errors.GatedRepoError():
            page = f"{constants.ENDPOINT}/{id}"
            if get_token() is None:
                return InvalidInput(f"{id} is gated: accept its licence on {page}, then {log_in}")
            return InvalidInput(
                f"{id} is gated, and your token has no access to it yet: accept its licence on {page}, or wait until "
                "its authors let you in; a fine-grained token also needs the right to read gated models"
            )
        case errors.RevisionNotFoundError():
            return InvalidInput(f"{id} has no revision {revision!r}: give a branch, a tag or a commit of its history")
        case errors.RepositoryNotFoundError():
            return InvalidInput(
                f"the hub has no model {id!r}, or it is private: check its name; for a private one {log_in}"
            )
        case errors.DisabledRepoError():
            return InvalidInput(f"the hub has disabled {id}: choose another model")
        case errors.EntryNotFoundError():
            return InvalidInput(f"{id}: the hub lacks one of its files: {_first_line(error)}; choose another revision")
        case errors.HFValidationError():
            return InvalidInput(f"no model {id!r}: a hub id is such as owner/name")
        case errors.HfHubHTTPError():
            return _refused(error, id, log_in)
    if type(error).__module__.split(".")[0] in NETWORK:
        return Unreachable(
            f"the hub cannot be reached at {constants.ENDPOINT} ({_first_line(error)}): check the network, or give the "
            "path of a local folder"
        )
    if isinstance(error, (json.JSONDecodeError, UnicodeDecodeError)):
        return Unreachable(
            f"what answers at {constants.ENDPOINT} is no hub: check HF_ENDPOINT, and whether the network wants a login"
        )
    return None


def _refused(error: errors.HfHubHTTPError, id: str, log_in: str) -> InvalidInput:
    status = error.response.status_code
    match status:
        case 401:
            return InvalidInput(f"the hub does not accept your token (401): {log_in}, with one that is valid")
        case 403:
            return InvalidInput(f"your token has no right to read {id or 'this'} (403): {log_in}, with one that has")
        case 408 | 429:
            wait = error.response.headers.get("Retry-After", "")
            when = f"in {wait} seconds" if wait.isdigit() else "in some minutes"
            more = "" if get_token() else "; who is logged in may ask more often"
            busy = Unreachable(f"the hub takes no more requests from here for now ({status}): try again {when}{more}")
            busy.wait = float(wait) if wait.isdigit() else 0.0
            return busy
        case _ if status >= 500:
            return Unreachable(f"the hub has trouble of its own ({status}): try again in some minutes")
    return InvalidInput(f"the hub refuses ({status}): {_first_line(error)}")


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]


# Jobs.


def search(arguments: dict[str, Any], report: Report) -> list[dict[str, Any]]:
    """`query`, `limit` -> models of search results."""
    asked = {"search": arguments["query"], "limit": arguments["limit"], "expand": SEARCHED}
    asked |= {"pipeline_tag": "text-generation", "filter": "safetensors", "sort": "downloads", "direction": -1}
    with in_words():  # not HfApi.list_models, which without a network tries for half a minute
        response = session().get(f"{constants.ENDPOINT}/api/models", params=asked, headers=build_hf_headers())
        hf_raise_for_status(response)
        return [asdict(_model(ModelInfo(**found))) for found in response.json()]


def facts(arguments: dict[str, Any], report: Report) -> dict[str, Any]:
    """`id`, `revision` -> the model with its files."""
    return asdict(model_of(ask(arguments["id"], arguments["revision"])))


def parts(arguments: dict[str, Any], report: Report) -> dict[str, Any]:
    """`id`, `revision` -> config, shape and dtype of each tensor, chat template or not, licence: by ranges of files,
    so that no weights are read."""
    id = arguments["id"]
    info = ask(id, arguments["revision"])
    model = model_of(info)
    files = [name for name, _ in model.files]
    commit = str(info.sha)
    weights = weights_of(files)
    if not weights:
        raise InvalidInput(f"{id}: {model.problem}")
    if "config.json" not in files:
        raise InvalidInput(f"{id} has no config.json: it is no transformers model")
    with in_words(id, commit):
        texts = {n: _text(id, commit, n) for n in ("config.json", "tokenizer_config.json") if n in files}
        session()
        with ThreadPoolExecutor(HEADERS_AT_ONCE) as pool:
            reads = [pool.submit(HfApi().parse_safetensors_file_metadata, id, n, revision=commit) for n in weights]
            try:
                headers = [read.result() for read in reads]
            except errors.SafetensorsParsingError as error:
                raise InvalidInput(f"{id}: its weights are no safetensors: {_first_line(error)}") from error
    try:
        config = json.loads(texts["config.json"])
    except ValueError as error:
        raise InvalidInput(f"{id}: its config.json cannot be read: {error}; choose another revision") from error
    return {
        "config": config,
        "tensors": {n: [list(t.shape), str(t.dtype)] for header in headers for n, t in header.tensors.items()},
        "chat": "chat_template.jinja" in files or "chat_template" in texts.get("tokenizer_config.json", ""),
        "licence": model.licence,
    }


# What the jobs are made of.


def ask(id: str, revision: str | None) -> Any:
    """The hub's model info, with the files' sizes and hashes."""
    session()
    with in_words(id, revision):
        return HfApi().model_info(id, revision=revision, files_metadata=True, timeout=TIMEOUT)


def model_of(info: Any) -> HubModel:
    """A model with the files that a load needs."""
    siblings = {s.rfilename: int(s.size or 0) for s in info.siblings or []}
    wanted = wanted_of(siblings)
    return _model(info, tuple((n, siblings[n]) for n in wanted), "" if weights_of(wanted) else fault_of(siblings))


def _model(info: Any, files: tuple[tuple[str, int], ...] = (), problem: str = "") -> HubModel:
    tags = info.tags or ()
    licence = next((tag.removeprefix("license:") for tag in tags if tag.startswith("license:")), "")
    card = getattr(info, "card_data", None)
    if card is not None:
        named = card.get("license_name") if licence in ("", "other") else None
        licence = str(named or licence or card.get("license") or "")
    updated = info.last_modified.timestamp() if info.last_modified else 0.0
    liked, access = (info.downloads or 0, info.likes or 0), (info.gated or "", bool(info.private))
    return HubModel(info.id, info.sha or "", *liked, *access, licence, updated, files, problem)


def wanted_of(names: Iterable[str], *, pickles: bool = False, code: bool = False) -> list[str]:
    """The files that a load needs: of the top folder alone, since others hold the same weights in other formats."""
    names = list(names)
    texts = [n for n in names if TEXTS.fullmatch(n) or (code and CODE.fullmatch(n))]
    weights = weights_of(names)
    if not weights and pickles:
        weights = [n for n in names if PICKLED.fullmatch(n)]
    return sorted(texts + weights)


def weights_of(names: Iterable[str]) -> list[str]:
    """The safetensors that transformers reads: one file, or shards."""
    names = set(names)
    if "model.safetensors" in names:
        return ["model.safetensors"]
    return sorted(n for n in names if SAFETENSORS.fullmatch(n)) if INDEX in names else []


def fault_of(names: Iterable[str]) -> str:
    """Why a model without safetensors cannot be loaded, with the remedy."""
    names = sorted(names)
    if "adapter_config.json" in names:
        return "an adapter, no model of its own: choose the model that it was made for"
    if pickled := next((n for n in names if PICKLED.fullmatch(n) or n.endswith((".pt", ".pth"))), ""):
        return (
            f"its weights are only there as pickle ({pickled}), which can run any code when opened: choose a model "
            "with safetensors, or download it with pickles and convert it yourself"
        )
    if any(n.endswith(".gguf") for n in names):
        return "its weights are GGUF, another program's format: choose a model with safetensors"
    if other := next((n for n in names if n.endswith(".safetensors")), ""):
        return f"it has {other}, but no model.safetensors or {INDEX}: choose a model that transformers can load"
    return "it has no *.safetensors: choose a model with weights in that format"


def address(id: str, commit: str, name: str) -> str:
    return f"{constants.ENDPOINT}/{id}/resolve/{commit}/{quote(name)}"


def _text(id: str, commit: str, name: str) -> str:
    response = session().get(address(id, commit, name), headers=build_hf_headers())
    hf_raise_for_status(response)
    return str(response.text)
