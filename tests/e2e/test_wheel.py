"""What a user installs: the wheel and the source archive, outside the repository, with the plain dependencies only."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from tests.helpers.cli import without_compiling

from veilwalk.core.version import __version__
from veilwalk.graphs import _kernels

ROOT = Path(__file__).parents[2]
CONTAINERFILE = ROOT / "examples" / "deploy" / "Containerfile"


def called(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a command that sees no repository: neither through its folder nor through the environment."""
    clean = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "NUMBA_CACHE_DIR"}}
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, env=clean, timeout=240)
    assert done.returncode == 0, done.stderr
    return done


def link_dependencies(of: str, site: Path) -> set[str]:
    """Link what a plain installation would download for a distribution in ``site``; return what that is.

    Taken from the environment of the tests, so that no network is needed; extras are left out, and so is what is
    only there for the tests.
    """
    wanted, linked = [Requirement(of)], set[str]()
    while wanted:
        requirement = wanted.pop()
        if requirement.name in linked or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
            continue
        linked.add(requirement.name)
        here = list(metadata.distributions(name=requirement.name, path=[str(site)]))
        found = here[0] if here else metadata.distribution(requirement.name)
        wanted += map(Requirement, found.requires or [])
        for name in {path.parts[0] for path in found.files or [] if not here} - {"..", "__pycache__"}:
            if not (site / name).exists():
                (site / name).symlink_to(str(found.locate_file(name)))
    return linked


def lend_compiled_kernels(package: Path, cache: Path) -> None:
    """Copy what the tests have compiled so far: compiling the same text again takes a minute and shows nothing."""
    for source in (ROOT / "src" / "veilwalk").rglob("*.py"):
        assert (package / source.relative_to(ROOT / "src" / "veilwalk")).read_bytes() == source.read_bytes()
    compiled = Path(str(_kernels.distance_rows.stats.cache_path)).parent
    shutil.copytree(compiled, cache / compiled.name)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both archives."""
    folder = tmp_path_factory.mktemp("dist")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet"]
    called(*pip, "--no-build-isolation", "--no-deps", "--wheel-dir", folder, str(ROOT), cwd=folder)
    called(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", folder, cwd=ROOT)
    return folder


@pytest.fixture(scope="module")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The programs of an empty environment into which the wheel was installed, for a user with an own cache."""
    folder = tmp_path_factory.mktemp("user") / "venv"
    called(sys.executable, "-m", "venv", "--without-pip", folder, cwd=built)
    (wheel,) = built.glob("*.whl")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(folder / "bin" / "python")]
    called(*pip, "install", "--quiet", "--no-deps", "--no-index", wheel, cwd=built)
    (site,) = folder.glob("lib/python*/site-packages")
    cache = tmp_path_factory.mktemp("cache")
    lend_compiled_kernels(site / "veilwalk", cache / "veilwalk")
    linked = link_dependencies("veilwalk", site)
    assert {"numpy", "scipy", "numba", "llvmlite", "cryptography", "typer", "rich"} <= linked
    assert not {"matplotlib", "jinja2", "pytest"} & linked
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("XDG_CACHE_HOME", str(cache))
        yield folder / "bin"


def test_the_archives_hold_what_they_should(built: Path) -> None:
    """The wheel has every file of the package and nothing else; the source archive also what tests and pages need."""
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    package = {name.removeprefix("src/") for name in tracked if name.startswith("src/") and (ROOT / name).exists()}
    (wheel,) = built.glob(f"veilwalk-{__version__}-py3-none-any.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert package <= names
    manual = f"veilwalk-{__version__}.data/data/share/man/man1/veilwalk.1"
    assert manual in names
    own = (f"veilwalk-{__version__}.dist-info/", "veilwalk/")
    assert all(name.startswith(own) for name in names - {manual})
    assert {"veilwalk/learning/digits.npz", "veilwalk/py.typed", "veilwalk/report/training.html"} <= names
    (archive,) = built.glob(f"veilwalk-{__version__}.tar.gz")
    with tarfile.open(archive) as packed:
        sources = {name.partition("/")[2] for name in packed.getnames()}
    assert {f"src/{name}" for name in package} <= sources
    assert {"README.md", "LICENSE", "pyproject.toml", "Makefile", "constraints.txt", "tests/conftest.py"} <= sources


def test_what_the_container_image_is_given_makes_the_wheel(built: Path, tmp_path: Path) -> None:
    """Every file that a build asks for is copied there: the same wheel, name by name."""
    for sources, target in re.findall(r"^COPY (.+) /src/(\S*)$", CONTAINERFILE.read_text(), re.MULTILINE):
        for source in sources.split():
            place = tmp_path / target
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, place, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                place.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / source, place)
    called(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path / "dist", cwd=tmp_path)
    given, whole = (
        set(zipfile.ZipFile(next(folder.glob("*.whl"))).namelist()) for folder in (tmp_path / "dist", built)
    )
    assert given == whole


def test_the_wheel_alone_is_imported_and_draws_nothing(installed: Path, tmp_path: Path) -> None:
    """No editable install, no repository and no drawing library is in reach."""
    look = "import importlib.util as u, veilwalk"
    code = f"{look}; print(veilwalk.__file__, u.find_spec('matplotlib'), u.find_spec('jinja2'))"
    file, *drawing = called(installed / "python", "-c", code, cwd=tmp_path).stdout.split()
    assert Path(file).is_relative_to(installed.parent)
    assert drawing == ["None", "None"]


def test_a_plain_installation_designs_and_trains(installed: Path, tmp_path: Path) -> None:
    """As a newcomer would, to the end: figures are left out in one line, the table and the record are there."""
    assert called(installed / "veilwalk", "--version", cwd=tmp_path).stdout == f"veilwalk {__version__}\n"
    assert "--install-completion" in called(installed / "python", "-m", "veilwalk", "-h", cwd=tmp_path).stdout
    designed = called(installed / "veilwalk", "paper", "law", "--nodes", "300", "--degree", "3", cwd=tmp_path)
    assert "574.9" in designed.stdout
    assert "not report (figures and pages)" in called(installed / "veilwalk", "doctor", cwd=tmp_path).stdout
    assert "train.toml" in called(installed / "veilwalk", "init", "mine", cwd=tmp_path).stdout
    asked = ["--graph", "rrg:30:3:seed=1", "--updates", "60", "--attack", "0", "--out", "run"]
    trained = called(installed / "veilwalk", "train", *asked, cwd=tmp_path)
    (said,) = without_compiling(trained.stderr).splitlines()
    assert re.fullmatch(
        r"figures are left out: (matplotlib|jinja2) is missing; pip install 'veilwalk\[report\]' .*", said
    )
    assert re.search(r"^private-walk +\d", trained.stdout, re.MULTILINE)
    record = json.loads((tmp_path / "run" / "record.json").read_text())
    assert record["algorithms"]["private-walk"]["updates"] == 60
    assert (tmp_path / "run" / "metrics.csv").read_text().startswith("algorithm,")
    assert not (tmp_path / "run" / "report.html").exists()
    # Nothing was put where an uninstall would leave it.
    assert not list(installed.parent.rglob("*.nb[ci]"))


def test_the_five_lines_of_the_readme_run_on_the_wheel(installed: Path, tmp_path: Path) -> None:
    """With numbers of a tenth: ``tests/meta/test_readme_python.py`` runs them as they stand, but for the graph."""
    blocks = re.findall(r"```python\n(import veilwalk as vw\n.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (lines,) = blocks
    for shown, small in (
        ("300, 3", "30, 3"),
        ("50_000", "2_000"),
        ("MyLearner()", '"softmax", attack=0'),
    ):
        assert shown in lines
        lines = lines.replace(shown, small)
    before = "import veilwalk\nX, y = (lambda rows: (rows.features, rows.labels))(veilwalk.load_data('digits').train)\n"
    after = 'print(audit["last-hop"].hit_ratio, run.trainings["private-walk"].points[-1].accuracy)'
    shown = called(installed / "python", "-c", before + lines + after, cwd=tmp_path).stdout
    named, accuracy = map(float, shown.split())
    assert 1 / 30 < named < 0.5
    assert accuracy > 0.8
