"""The section on noise: its tables from what jobs found, and the rest of the page left alone."""

from __future__ import annotations

from tools.pages import noise


def test_the_section_is_renewed_and_nothing_else() -> None:
    """Means with least and largest over seeds, the largest epsilon counted; other sections stay to the letter."""
    jobs = noise.training_jobs("mnist:x")
    found = [
        {"accuracy": 0.5 + job["seed"] / 100, "epsilon": job["epsilon"] - 0.01 / job["seed"], "noise": 2.0, "clip": 1.0}
        | {"most_updates": 10}
        for job in jobs
    ]
    cost = noise.cost_lines(jobs, found)
    assert len(cost) == 2 + 8
    assert "| record | 8 | 7.997 | iid | 10 | 2 | 1 | 52.0% [51.0%-53.0%] |" in cost
    leaks = noise.leak_jobs()
    row = {"hit_ratio": 0.25, "hit_ratio_interval": [0.2, 0.3]}
    attackers = {"route alone": row} | {f"route and content: {name}": row for name in noise.COLUMNS[1:]}
    leak = noise.leak_lines(
        leaks, [{"attackers": attackers, "membership": [0.6, 0.55, 0.65], "accuracy": 0.9} for _ in leaks]
    )
    assert leak[2].startswith("| nothing | 90.0% | 25.0% [20.0%-30.0%] |")
    assert leak[-1].startswith("| node, epsilon 1 |")
    shared = noise.correlated_jobs("mnist:x")
    text = noise.section(cost, noise.correlated_lines(shared, [{"accuracy": 0.75} for _ in shared]), leak)
    assert "node, epsilon 1: 75.0%" in text
    page = "# Learning\n\n## Local steps\n\nsteps\n\n## Noise\n\nold\n\n| old |\n\n## Speed\n\nfast\n"
    after = noise.renewed(page, text)
    assert after == page.replace("old\n\n| old |", text)
    assert noise.renewed(after, text) == after
