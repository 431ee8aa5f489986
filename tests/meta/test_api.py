"""The Python reference and the manual page are the code's own, and the front door is lazy."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys

import pytest
from tools.pages import man
from tools.pages.api import PAGE, ROOMS, page

import veilwalk


def test_the_reference_is_what_make_api_would_write() -> None:
    """A name, a default or a first line that changes is a page to be written anew: ``make api``."""
    assert PAGE.read_text() == page()


def test_the_reference_has_every_name_and_every_room() -> None:
    """Each name of the front door with its entry; each room that the package's docstring draws with its table."""
    text = PAGE.read_text()
    for name in veilwalk.__all__:
        assert f"\n**`vw.{name}" in text
    drawn = (str(veilwalk.__doc__).partition("The rooms")[2]).partition("This is the front door")[0]
    for room in ("core", *ROOMS):
        assert f"``{room}``" in drawn
        assert f"### `veilwalk.{room}`\n" in text


def test_the_manual_page_is_what_make_api_would_write() -> None:
    """Every verb has its section; help that changes is a page to be written anew."""
    text = man.PAGE.read_text()
    assert text == man.page()
    assert {"train", "cluster up", "node run", "roster sign"} <= set(
        re.findall(r"^\.SS veilwalk ([a-z ]+) \[", text, re.MULTILINE)
    )


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_the_manual_page_is_set_without_a_complaint() -> None:
    """And says the flags as they are typed, unbroken."""
    done = subprocess.run(
        ["groff", "-man", "-Tascii", "-ww", "-P-cbou", man.PAGE], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    assert "veilwalk frontier --graph rrg:300:3:seed=1 --out frontier" in " ".join(done.stdout.split())


def test_the_front_door_loads_nothing_before_it_is_asked() -> None:
    """Import alone is quick; a room answers a call with the function of its name, whoever imported it first."""
    code = (
        "import sys, veilwalk as vw\n"
        "assert not [name for name in sys.modules if name.startswith(('numpy', 'numba', 'scipy', 'typer'))]\n"
        "assert vw.design is sys.modules['veilwalk.design'] and vw.audit is sys.modules['veilwalk.audit']\n"
        "assert callable(vw.design) and callable(vw.audit) and 'optimal' in vw.design.LAWS\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
