"""Exports what kernels of other packages use: decorators, random words, weights of a law, chances of an opening."""

from veilwalk.walks._compile import jit, jit_inline, jit_inline_nogc, jit_noinline_nogc, jit_parallel
from veilwalk.walks._kernels_laws import chance, weight_of
from veilwalk.walks._kernels_random import ZERO, next_word
from veilwalk.walks._tables import build_law_tables

__all__ = [
    "ZERO",
    "build_law_tables",
    "chance",
    "jit",
    "jit_inline",
    "jit_inline_nogc",
    "jit_noinline_nogc",
    "jit_parallel",
    "next_word",
    "weight_of",
]
