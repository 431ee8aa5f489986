"""What kernels of other rooms are made with: ways to compile, the weights of a law, the chance of an opening."""

from veilwalk.walks._compile import kernel, part, serial
from veilwalk.walks._kernels_laws import weight_of
from veilwalk.walks._kernels_openings import chance
from veilwalk.walks._kernels_random import ZERO
from veilwalk.walks._laws import set_rows

__all__ = ["ZERO", "chance", "kernel", "part", "serial", "set_rows", "weight_of"]
