"""Compiles kernels: one place for numba's options, and a prefetch instruction, for which numba has no name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from veilwalk.engine import njit

_Function = TypeVar("_Function", bound=Callable[..., Any])

# Kernels release the GIL, so that the main thread can answer an interrupt while they run.
_OPTIONS: dict[str, Any] = {"cache": True, "error_model": "numpy", "nogil": True}
# Functions that allocate no arrays need no reference counts of their arguments: two atomic operations an array and
# call took most of the time of functions as short as these.
_UNCOUNTED: dict[str, Any] = {"cache": True, "error_model": "numpy", "_nrt": False}


def jit_parallel(function: _Function) -> _Function:
    """Compile a function that Python calls; its ``prange`` loops run on every thread."""
    return cast(_Function, njit(parallel=True, **_OPTIONS)(function))


def jit(function: _Function) -> _Function:
    """Compile a function for one thread; parallel ones take seconds longer to compile."""
    return cast(_Function, njit(**_OPTIONS)(function))


def jit_inline(function: _Function) -> _Function:
    """Compile a function that kernels call into its caller."""
    return cast(_Function, njit(cache=True, error_model="numpy", forceinline=True)(function))


def jit_inline_nogc(function: _Function) -> _Function:
    """Compile a function that kernels call into its caller; it may not allocate arrays."""
    return cast(_Function, njit(forceinline=True, **_UNCOUNTED)(function))


def jit_noinline_nogc(function: _Function) -> _Function:
    """Compile a function by itself where its caller would run out of registers; it may not allocate arrays."""
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


#: ``prefetch(array, index)`` requests the cache line of ``array[index]`` without waiting for it.
prefetch = cast(Callable[[Any, Any], None], intrinsic(_prefetch))
