"""Two pages on data of one's own, followed to the letter: twelve sites with their own files, and plots from Python."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

from tests.helpers.pages import list_commands, run_in, write_files


def test_twelve_sites_train_in_one_process_and_in_twelve(tmp_path: Path) -> None:
    """Every command of the page; each site has its score, better than its own baseline on the whole."""
    page = "twelve-sites-with-their-own-files"
    assert write_files(page, tmp_path) == ["make_sites.py"]
    run_in(tmp_path, "make_sites.py")
    dry, train, predict, nodes = map(shlex.split, list_commands(page))
    assert "whole run: about" in run_in(tmp_path, *dry)
    sites = json.loads(run_in(tmp_path, *train, "--json"))["sites"]
    assert [site["name"] for site in sites] == sorted(path.stem for path in (tmp_path / "sites").iterdir())
    assert sum(site["score"] > site["baseline"] for site in sites) >= 8
    assert (tmp_path / "run" / "report.html").exists()
    assert "accuracy" in run_in(tmp_path, *predict)
    # Fewer updates than on the page: that nodes train is tested elsewhere at length.
    result = json.loads(run_in(tmp_path, *nodes, "--updates", "24", "--dwell", "0.05", "--json", timeout_s=500))
    assert (result["nodes"], result["updates"]) == (12, 24)


def test_every_plot_of_the_page_is_drawn(tmp_path: Path) -> None:
    """Each script by itself, into the file that it names."""
    names = write_files("plot-from-python", tmp_path)
    assert names == ["learning.py", "observers.py", "choices.py", "report.py"]
    printed = [run_in(tmp_path, name) for name in names]
    for name in ("learning", "observers", "choices"):
        assert (tmp_path / f"{name}.pdf").read_bytes().startswith(b"%PDF")
    assert all((tmp_path / line).exists() for line in printed[-1].split())
