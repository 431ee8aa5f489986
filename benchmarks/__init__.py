"""Speed beside the peers that a user would pick."""
