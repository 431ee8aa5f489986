"""The table of docs/how-to/choose-in-five-minutes.md: what ``veilwalk recommend`` says of some networks.

    python -m tools.pages.choices

Some minutes; a network that is in the folder of finished ones is not asked for again. Larger networks are measured by
``tools.pages.routes``.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tools.pages.markdown import write_section
from veilwalk.core.records import write_atomically
from veilwalk.core.units import readable_bytes
from veilwalk.core.version import __version__

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "choose-in-five-minutes.md"
NETWORKS = {
    "rrg:20:3:seed=1": "20 peers, 3 neighbours each",
    "rrg:60:4:seed=1": "60 peers, 4 neighbours each",
    "rrg:100:4:seed=1": "100 peers, 4 neighbours each",
}
MODELS = {31_400: "31 kB", 10_000_000: "10 MB"}


def asked(network: str, model_bytes: int, folder: Path) -> dict[str, Any]:
    """Return what the command says, from the folder if it was asked before."""
    kept = folder / f"{network.replace(':', '_')}-{model_bytes}.json"
    if not kept.exists():
        command = ["recommend", "--graph", network, "--model-bytes", str(model_bytes), "--json"]
        said = subprocess.run([sys.executable, "-m", "veilwalk", *command], capture_output=True, text=True, check=True)
        write_atomically(kept, said.stdout.encode())
    found: dict[str, Any] = json.loads(kept.read_text())
    return found


def row(network: str, answers: dict[int, dict[str, Any]]) -> str:
    """Return one line of the table, from what is said for each size of the model; the scheme is that of the first."""
    said, *others = answers.values()
    found = said["design"]
    if any(found[key] != other["design"][key] for other in others for key in ("recipients", "law", "walk")):
        raise SystemExit(f"{network}: another scheme for another size of the model needs a line of its own")
    each = (f"{MODELS[size]}: {readable_bytes(one['design']['bytes_per_update'])}" for size, one in answers.items())
    low, high = found["hit_ratio_interval"]
    tenth = next(one for one in found["read_by_colluders"] if one["share"] == 0.1)
    short = "" if said["meets_floor"] else " (**less than asked**)"
    cells = (
        NETWORKS[network],
        f"{found['recipients']}, `{found['law']}`, {found['walk']}",
        f"{found['mean_iteration_hops']:.1f}",
        ", ".join(each),
        f"{found['node_entropy_nats']:.2f}, {found['node_entropy_share']:.1%}{short}",
        f"{low:.1%}, exact" if low == high else f"{low:.1%} to {high:.1%}",
        f"{found['predecessor']['knows_first_hop']['mean']:.0%}",
        f"{tenth['mean']:.0%}",
    )
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Ask, and write the table into the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, default=Path("out/choices"), help="folder of finished answers")
    folder: Path = parser.parse_args().work
    rows = [row(network, {size: asked(network, size, folder) for size in MODELS}) for network in NETWORKS]
    head = (
        "| network | sealed for, law, walk | hops | bytes an update, by model | node entropy kept "
        "| opener's best guess | who sealed it guesses the opener | read by a tenth that shares keys |\n"
        "|---|---|---:|---|---|---|---:|---:|\n"
    )
    write_section(PAGE, "tools.pages.choices", f"With veilwalk {__version__}:\n\n{head}" + "\n".join(rows))


if __name__ == "__main__":
    main()
