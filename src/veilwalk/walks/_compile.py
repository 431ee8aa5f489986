"""How kernels are compiled: one place for the options, and the one instruction numba has no name for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from veilwalk.engine import njit

_Function = TypeVar("_Function", bound=Callable[..., Any])


def kernel(function: _Function) -> _Function:
    """Compile a function that Python calls; its ``prange`` loops run on every thread."""
    return cast(_Function, njit(cache=True, parallel=True, error_model="numpy")(function))


def serial(function: _Function) -> _Function:
    """Compile a function that Python calls, for one thread: parallel ones take seconds longer to compile."""
    return cast(_Function, njit(cache=True, error_model="numpy")(function))


def part(function: _Function) -> _Function:
    """Compile a function that kernels call, always as part of its caller."""
    return cast(_Function, njit(cache=True, error_model="numpy", forceinline=True)(function))


# What only kernels of this room call makes no arrays, so it need not count who holds those it is given: numba's counts,
# two atomic operations an array and call, took most of the time of functions as short as these.
_UNCOUNTED: dict[str, Any] = {"cache": True, "error_model": "numpy", "_nrt": False}


def inlined(function: _Function) -> _Function:
    """Compile a function that kernels call, always as part of its caller; it may not make arrays."""
    return cast(_Function, njit(forceinline=True, **_UNCOUNTED)(function))


def apart(function: _Function) -> _Function:
    """Compile a function that kernels call, by itself: with its caller it would run out of registers; as above."""
    return cast(_Function, njit(**_UNCOUNTED)(function))


def _prefetch(_context: Any, array: types.Array, _index: types.Integer) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        address = builder.bitcast(builder.gep(data, [arguments[1]]), ir.IntType(8).as_pointer())
        int32 = ir.IntType(32)
        name = "llvm.prefetch.p0"
        declared = builder.module.globals.get(name)
        if declared is None:
            kind = ir.FunctionType(ir.VoidType(), [address.type, int32, int32, int32])
            declared = ir.Function(builder.module, kind, name)
        # Read, keep in every cache level, data cache.
        builder.call(declared, [address, int32(0), int32(3), int32(1)])
        return context.get_dummy_value()

    return types.void(array, _index), generate


#: ``prefetch(array, index)`` asks for the cache line of ``array[index]`` and does not wait for it.
prefetch = cast(Callable[[Any, Any], None], intrinsic(_prefetch))
