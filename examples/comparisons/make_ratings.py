"""Write made-up ratings in MovieLens' format, as many as ml-latest-small has: for who cannot fetch the real file.

    python examples/comparisons/make_ratings.py ratings.csv [USERS]

610 users, 9,724 films, about 100,000 ratings from 0.5 to 5 in halves. Films are rated by a power law of popularity;
a rating is the sum of a mean, a user's and a film's leaning, a product of five hidden tastes, and noise. Nothing of
this is MovieLens': it serves to run the same code on rows of the same shape.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np

USERS, FILMS, TASTES = 610, 9_724, 5


def made_up(users: int = USERS, seed: int = 1) -> list[tuple[int, int, float, int]]:
    """Return rows of user, film, rating and time."""
    rng = np.random.default_rng(seed)
    popularity = 1 / np.arange(8, FILMS + 8)
    popularity = rng.permutation(popularity / popularity.sum())
    counts = np.clip(rng.lognormal(4.36, 1.2, users).astype(int), 20, 2_000)
    leaning, films = rng.normal(0, 0.45, users), rng.normal(0, 0.5, FILMS)
    likes, has = rng.normal(0, 0.45, (users, TASTES)), rng.normal(0, 0.7, (FILMS, TASTES))
    rows = []
    for user in range(users):
        seen = rng.choice(FILMS, size=counts[user], replace=False, p=popularity)
        rating = 3.5 + leaning[user] + films[seen] + has[seen] @ likes[user] + rng.normal(0, 0.7, len(seen))
        halves = np.clip(np.round(2 * rating) / 2, 0.5, 5.0)
        rows += [(user + 1, int(film) + 1, float(half), 964_982_703) for film, half in zip(seen, halves, strict=True)]
    return rows


def main(target: str, users: str = str(USERS)) -> None:
    """Write the file."""
    with Path(target).open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(("userId", "movieId", "rating", "timestamp"))
        writer.writerows(made_up(int(users)))


if __name__ == "__main__":
    main(*sys.argv[1:3])
