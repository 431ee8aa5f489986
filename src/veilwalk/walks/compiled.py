"""What kernels of other rooms are made with: the two ways to compile, and a token that walks on from where it is."""

from veilwalk.walks._compile import kernel, serial
from veilwalk.walks._kernels_memory_paths import walk_on
from veilwalk.walks._kernels_random import ZERO

__all__ = ["ZERO", "kernel", "serial", "walk_on"]
