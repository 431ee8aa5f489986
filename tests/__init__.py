"""Everything that must hold; helpers that several rooms share are in :mod:`tests.helpers`."""
