"""What runs beside the package: how fast it is, the tables in its docs, and what it survives."""
