"""What torch's operations do with tensors of a pretend GPU: they wait in a stream for their turn."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils._pytree import tree_flatten, tree_map_only, tree_unflatten

from tests.pretend_gpu import streams
from tests.pretend_gpu.copies import converted, copied, sent
from tests.pretend_gpu.tensor import CPU, CardTensor, OnCard, held, like, pinned, put, wait

# The host waits for what these give, or for how large it is.
TOLD = {
    "_local_scalar_dense", "nonzero", "masked_select", "_unique2", "unique_dim", "unique_consecutive", "bincount",
    "equal", "allclose", "is_nonzero", "_is_all_true", "_is_any_true",
}  # fmt: skip
SHAPES = {"is_same_size", "sym_size", "sym_stride", "sym_numel", "sym_storage_offset"}


def dispatch(func: OpOverload, args: Any, kwargs: dict[str, Any]) -> Any:
    """Any operation of a thread that has pretend GPUs. Raises as torch does where tensors of a GPU meet others."""
    flat, _ = tree_flatten((args, kwargs))
    found = [each for each in flat if isinstance(each, CardTensor)]
    if composed(func) and (found or any(map(on_cuda, flat))):
        with OnCard():
            return func.decompose(*args, **kwargs)
    name = func.overloadpacket.__name__
    if not found:
        return of_the_host(func, name, args, kwargs)
    index = found[0].memory.card.index
    if name == "_to_copy":
        return to_copy(args[0], kwargs, index)
    if name == "copy_":
        return copied(args, kwargs)
    if name in ("record_stream", "is_pinned"):
        return None if name == "record_stream" else False
    if name in SHAPES:
        return func(*held(args), **held(kwargs))
    by_index = name.startswith(("index", "_index_put", "_unsafe_index"))
    strays = [each for each in flat if isinstance(each, Tensor) and not isinstance(each, CardTensor) and each.dim()]
    apart = any(each.memory.card.index != index for each in found)
    if apart or (strays and not by_index):
        raise RuntimeError(f"Expected all tensors to be on the same device, but found at least two devices: {func}")
    told = name in TOLD or (name == "_grouped_mm" and found[0].dtype != torch.bfloat16)  # then torch loops over groups
    if by_index and isinstance(args[1], (list, tuple)):
        args = args[0], [there(each, index) for each in args[1]], *args[2:]
        told = any(each is not None and each.dtype in (torch.bool, torch.uint8) for each in args[1])
        if name.startswith("_index_put") or name == "index_put_":
            args = args[0], args[1], there(args[2], index, scalars=True), *args[3:]
    if told:
        return at_once(func, args, kwargs, index)
    if name == "histc" and not found[0].dtype.is_floating_point:  # which a CPU counts in floats alone
        args = args[0].float(), *args[1:]
    if is_view(func):
        return viewed(func, args, kwargs, found[0])
    if kwargs.get("device") is not None and not on_cuda(kwargs["device"]):
        return func(*held(args), **held(kwargs))  # of the shape alone
    return computed(func, args, kwargs, index)


@cache
def composed(func: OpOverload) -> bool:
    """Whether torch makes it of other operations: with gradients off it comes here whole."""
    return bool(func.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd))


def on_cuda(value: Any) -> bool:
    return isinstance(value, torch.device) and value.type == "cuda"


def of_the_host(func: OpOverload, name: str, args: Any, kwargs: dict[str, Any]) -> Any:
    """An operation that is given no tensor of a GPU; it may make one, or pinned memory."""
    if name == "is_pinned":
        return pinned.holds(args[0])
    if name == "_pin_memory":
        return pinned.empty(tuple(args[0].size()), args[0].dtype).copy_(args[0])
    if on_cuda(kwargs.get("device")):
        return made_there(func, name, args, kwargs, int(streams.as_device(kwargs["device"]).index))
    if not kwargs.get("pin_memory"):
        return func(*args, **kwargs)
    plain = func(*args, **{**kwargs, "pin_memory": False})
    made = pinned.empty(tuple(plain.size()), plain.dtype)
    return made if name.startswith("empty") else made.copy_(plain)


def made_there(func: OpOverload, name: str, args: Any, kwargs: dict[str, Any], index: int) -> CardTensor:
    if name == "_to_copy":
        source, dtype = args[0], kwargs.get("dtype")
        source = source if dtype is None or dtype == source.dtype else source.to(dtype)
        return sent(source, index, bool(kwargs.get("non_blocking")))
    plain = func(*args, **on_host(kwargs))
    made = like(plain, index)
    if not name.startswith(("empty", "new_empty")):
        target = made.held
        put(index, lambda: target.copy_(plain), str(func), [made])
    return made


def on_host(kwargs: dict[str, Any]) -> dict[str, Any]:
    given = {name: value for name, value in kwargs.items() if name != "pin_memory"}
    return {**given, "device": CPU} if given.get("device") is not None else given


def there(given: Tensor | None, index: int, scalars: bool = False) -> Tensor | None:
    """An index, or what is written at one: of the host's it is sent, and waited for."""
    if given is None or isinstance(given, CardTensor) or (given.dim() == 0 and not scalars):
        return given
    return sent(given, index, False)


def to_copy(source: CardTensor, kwargs: dict[str, Any], index: int) -> Tensor:
    """To another dtype, or another device."""
    device = kwargs.get("device")
    if device is None or (on_cuda(device) and streams.as_device(device).index == index):
        options = {name: value for name, value in kwargs.items() if name in ("dtype", "memory_format")}
        return computed(torch.ops.aten._to_copy.default, (source,), options, index)  # type: ignore[no-any-return]
    return converted(source, device, kwargs.get("dtype") or source.dtype, bool(kwargs.get("non_blocking")))


@cache
def is_view(func: OpOverload) -> bool:
    returned = func._schema.returns
    return any(each.alias_info is not None and not each.alias_info.is_write for each in returned)


def viewed(func: OpOverload, args: Any, kwargs: dict[str, Any], source: CardTensor) -> Any:
    with torch.no_grad():
        out = func(*held(args), **held(kwargs))
    with torch.inference_mode(source.is_inference()), torch.no_grad():
        return tree_map_only(Tensor, lambda each: CardTensor(each, source.memory), out)


def at_once(func: OpOverload, args: Any, kwargs: dict[str, Any], index: int) -> Any:
    """What the host waits for."""
    wait(index, str(func))
    with torch.inference_mode(), torch._C.DisableTorchFunction():
        out = func(*held(args), **held(on_host(kwargs)))
    written = mutated(func, args, kwargs)
    if written is not None:
        return written

    def kept(plain: Tensor) -> CardTensor:
        made = like(plain, index)
        with torch.inference_mode():
            made.held.copy_(plain)
        return made

    return tree_map_only(Tensor, kept, out)


def mutated(func: OpOverload, args: Any, kwargs: dict[str, Any]) -> Any:
    """The arguments that an operation in place returns, as it returns them; None of any other."""
    found = []
    for returned in func._schema.returns:
        if returned.alias_info is None or not returned.alias_info.is_write:
            return None
        for place, argument in enumerate(func._schema.arguments):
            info = argument.alias_info
            if info is not None and info.is_write and info.before_set == returned.alias_info.before_set:
                found.append(kwargs[argument.name] if argument.name in kwargs else args[place])
                break
    return found[0] if len(found) == 1 else tuple(found) or None


def to_meta(tensor: Tensor) -> Tensor:
    if tensor.dim() == 0 and not isinstance(tensor, CardTensor):
        return tensor
    return torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device="meta")


def computed(func: OpOverload, args: Any, kwargs: dict[str, Any], index: int) -> Any:
    """What comes of it is of a known shape at once, and written in its turn."""
    inner, options = held(args), held(on_host(kwargs))
    used = [each for each in tree_flatten((args, kwargs))[0] if isinstance(each, CardTensor)]
    written = mutated(func, args, kwargs)
    if written is not None or not func._schema.returns:
        put(index, lambda: func(*inner, **options), str(func), used)
        return written
    with torch._C.DisableTorchFunction(), torch.no_grad():
        given = tree_map_only(Tensor, to_meta, on_host(kwargs))
        if "device" in given:
            given["device"] = torch.device("meta")
        results, spec = tree_flatten(func(*tree_map_only(Tensor, to_meta, args), **given))
    made = [like(each, index) if isinstance(each, Tensor) else each for each in results]
    if not func.overloadpacket.__name__.startswith(("empty", "new_empty")):
        targets = [each.held if isinstance(each, CardTensor) else None for each in made]

        def do() -> None:
            for target, result in zip(targets, tree_flatten(func(*inner, **options))[0], strict=True):
                if target is not None:
                    target.copy_(result)

        put(index, do, str(func), [*used, *(each for each in made if isinstance(each, CardTensor))])
    return tree_unflatten(made, spec)
