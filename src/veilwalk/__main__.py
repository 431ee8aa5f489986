"""``python -m veilwalk``: the command line."""

from veilwalk.cli import main

main()
