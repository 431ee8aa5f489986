"""veilwalk: train a model across a network of peers so that no receiver can tell whose update it got.

The layers, lower ones first; each may import only what stands below it (checked by import-linter):

* ``core``: errors, validation, random sources, records;
* ``graphs``: the network;
* ``theory`` | ``chains``: two independent roads to the laws of the walk (closed forms, exact chains);
* ``design``: destination laws, what they guarantee and cost;
* ``experiments``: the paper's figures as records;
* ``report``: tables and figures from records;
* ``cli``: one thin module a verb.
"""

__version__ = "0.1.0"
