"""veilwalk: train a model across a network of peers so that no receiver can tell whose update it got.

The layers, lower ones first; each may import only what stands below it (checked by import-linter):

* ``core``: errors, validation, random sources, records;
* ``graphs``: the network;
* ``theory`` | ``chains`` | ``walks``: three independent roads to the laws of the walk (closed forms, exact chains,
  compiled sampling);
* ``design``: destination laws, what they guarantee and cost;
* ``audit``: observers, adversaries, scores: what really leaks;
* ``experiments``: the paper's figures as records;
* ``report``: tables and figures from records;
* ``cli``: one thin module a verb.
"""

__version__ = "0.1.0"
