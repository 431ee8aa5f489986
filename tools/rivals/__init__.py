"""Other systems' routes and other walks beside ours: mixnets, stems, onions, crowds, gossip."""
