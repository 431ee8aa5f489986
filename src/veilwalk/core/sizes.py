"""Size limits: up to which size each computation is affordable. All rooms read them here."""

#: From this many nodes on, tables of all pairs are out of the question.
LARGE_NODES = 10_000
#: Largest graph with exact laws at every destination: they cost horizon * nodes^3 * degree.
EXACT_NODES = 500
#: Largest graph with exact laws at a sample of destinations.
SAMPLED_EXACT_NODES = 2_000
#: Up to so many arcs the long run of a walk on arcs is solved exactly; that takes ten seconds.
EXACT_ARCS = 3_000
#: Entries of a table of arcs by sources; several such tables are held at once.
TABLE_ENTRIES = 4_000_000
