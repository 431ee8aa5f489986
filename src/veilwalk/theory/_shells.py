"""How many nodes stand at each distance in a random regular graph."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from veilwalk.core.arrays import FloatArray
from veilwalk.core.errors import InvalidParameterError
from veilwalk.theory._model import WalkModel


def gompertz_shell_sizes(distance: npt.ArrayLike, *, model: WalkModel) -> FloatArray:
    """A(l) = N (G(l-1) - G(l)) with G(l) = exp(-c/((c-2)N) ((c-1)^l - 1)): the expected shell sizes.

    The paper never says which shell sizes it uses; its published table fixes these (errata, point 0). A shell
    far beyond the diameter is zero to machine precision. Paper: A(l), unlabelled.
    """
    ell = np.asarray(distance)
    if not np.issubdtype(ell.dtype, np.integer) or np.any(ell < 1):
        raise InvalidParameterError("distance", distance, "whole numbers >= 1")
    c, n = model.degree, model.n_nodes
    # Beyond this exponent G underflows anyway; the cap keeps (c-1)^l finite.
    growth = np.minimum(ell * math.log(c - 1), 700.0)
    scale = c / ((c - 2) * n)
    before = scale * np.expm1(np.maximum(growth - math.log(c - 1), 0.0))
    step = scale * np.exp(growth) * (c - 2) / (c - 1)
    # G(l-1) - G(l) = G(l-1) (1 - e^-step): no difference of nearly equal numbers at large N.
    return n * np.exp(-before) * -np.expm1(-step)


def typical_diameter(model: WalkModel) -> int:
    """Largest distance at which a node is expected to have at least one other per graph: N A(l) >= 1."""
    distances = np.arange(1, 4 * math.ceil(math.log(model.n_nodes) / math.log(model.degree - 1)) + 8)
    sizes = gompertz_shell_sizes(distances, model=model)
    return int(distances[model.n_nodes * sizes >= 1.0].max())
