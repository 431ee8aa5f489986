"""The keys of the root and of nodes, and their rotation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.keys import new_keys

from veilwalk.core.errors import ConfigError, InputFileError, InvalidParameterError
from veilwalk.node.members._keys import (
    KeyRing,
    held_epochs,
    load_node_keys,
    load_root_key,
    load_root_public_key,
    new_root_key,
    rotate_node_keys,
)
from veilwalk.node.members._roster import read_card
from veilwalk.node.sealing._context import SealContext
from veilwalk.node.sealing._envelope import open_header, seal
from veilwalk.node.sealing._kem import Suite


def test_the_root_key_comes_back_and_its_public_half_fits(folder: Path, cheap: None) -> None:
    """Signed with one, verified with the other."""
    made = new_root_key(folder / "root", password=b"pw")
    loaded = load_root_key(folder / "root", password=b"pw")
    public = load_root_public_key(folder / "root" / "root.pub")
    public.verify(loaded.sign(b"x"), b"x")
    assert made.private_bytes_raw() == loaded.private_bytes_raw()


@pytest.mark.parametrize("text", ["", "zz" * 32, "00" * 31, "AB" * 32, "00" * 100])
def test_a_bad_public_key_file_is_refused(folder: Path, text: str) -> None:
    """64 lower-case digits, nothing else."""
    (folder / "root.pub").write_text(text)
    with pytest.raises(InputFileError):
        load_root_public_key(folder / "root.pub")


@pytest.mark.parametrize("suite", Suite)
def test_a_node_s_keys_come_back_and_open_what_is_sealed_to_its_card(folder: Path, cheap: None, suite: Suite) -> None:
    """The public keys on the card belong to the private ones on disk, epoch by epoch."""
    new_keys(folder / "keys", suite=suite, epoch=4, password=b"pw")
    keys = load_node_keys(folder / "keys", password=b"pw")
    member, found = read_card((folder / "keys" / "card.json").read_bytes(), "card")
    assert (member, found) == (keys.member, suite)
    assert sorted(keys.kem) == sorted(member.kem) == [4, 5]
    for epoch in (4, 5):
        context = SealContext(run_id=bytes(16), suite=suite, epoch=epoch, bucket_bytes=16384)
        message = seal(context, [member.kem[epoch]], walk_tag=bytes(8), iteration=0, body=b"x")
        assert open_header(context, keys.kem[epoch], message) is not None
        assert open_header(context, keys.kem[9 - epoch], message) is None


@pytest.mark.parametrize(
    "options", [{"node_id": "Clinic"}, {"node_id": ""}, {"node_id": "a" * 64}, {"node_id": "../x"}, {"node_id": "a\n"}]
)
def test_bad_names_are_refused_before_anything_is_written(folder: Path, options: dict[str, str]) -> None:
    """A name is part of certificates, and of paths."""
    with pytest.raises(InputFileError, match="must be"):
        new_keys(folder / "keys", **options)
    assert not (folder / "keys").exists()


@pytest.mark.parametrize(
    "address", ["host", "host:", ":1", "host:0", "host:65536", "a b:1", "::1:7", "host:1\n", "[x]:1"]
)
def test_bad_addresses_are_refused(folder: Path, address: str) -> None:
    """host:port, with IPv6 in brackets."""
    with pytest.raises(InputFileError, match="must be host:port"):
        new_keys(folder / "keys", address=address)


@pytest.mark.parametrize(
    ("address", "host", "port"),
    [("a.example:1", "a.example", 1), ("10.0.0.1:65535", "10.0.0.1", 65535), ("[::1]:7100", "::1", 7100)],
)
def test_addresses_fall_into_host_and_port(folder: Path, address: str, host: str, port: int) -> None:
    """As asyncio wants them."""
    member = new_keys(folder / "keys", address=address).member
    assert (member.host, member.port) == (host, port)


@pytest.mark.parametrize("epoch", [-1, 2**31, 1.5])
def test_bad_epochs_are_refused(folder: Path, epoch: Any) -> None:
    """Whole numbers that fit the roster."""
    with pytest.raises(InvalidParameterError, match=r"^epoch = "):
        new_keys(folder / "keys", epoch=epoch)


def test_mixed_up_directories_are_refused(folder: Path) -> None:
    """A card beside other keys than its own."""
    new_keys(folder / "one")
    new_keys(folder / "two")
    for name in ("card.json", "tls.key", "kem-0000000001.key"):
        content = (folder / "one" / name).read_bytes()
        (folder / "one" / name).write_bytes((folder / "two" / name).read_bytes())
        with pytest.raises(InputFileError, match="do not belong together"):
            load_node_keys(folder / "one")
        (folder / "one" / name).write_bytes(content)
    assert load_node_keys(folder / "one").id == "clinic-a"


def test_an_entry_of_the_roster_must_hold_this_node_s_keys(folder: Path) -> None:
    """Another TLS key, another sealing key or an epoch without one: what is sealed to it could never be opened."""
    keys, other = new_keys(folder / "keys"), new_keys(folder / "other")
    keys.check_entry(keys.member)
    with pytest.raises(ConfigError, match="the TLS key of clinic-a in the roster"):
        keys.check_entry(other.member)
    for kem in ({0: keys.member.kem[0], 1: other.member.kem[1]}, {1: keys.member.kem[1], 2: other.member.kem[1]}):
        with pytest.raises(ConfigError, match=r"the sealing key of clinic-a for epoch [12] in the roster"):
            keys.check_entry(replace(keys.member, kem=kem))
    keys.check_entry(replace(keys.member, kem={1: keys.member.kem[1]}))


def test_reprs_hold_no_secret(folder: Path) -> None:
    """Keys may be logged by mistake; their secrets may not."""
    keys = new_keys(folder / "keys")
    raw = keys.tls_key.private_bytes_raw()
    assert "PrivateKey" not in repr(keys)
    assert raw.hex() not in repr(keys)
    assert repr(raw)[2:-1] not in repr(keys)


def test_rotation_adds_the_next_epoch_and_deletes_two_behind(folder: Path, cheap: None) -> None:
    """A node in epoch e opens with e and e-1, has announced e+1, and no longer has e-2."""
    path = folder / "keys"
    new_keys(path, password=b"pw")
    for epoch in range(1, 6):
        keys = rotate_node_keys(path, password=b"pw")
        assert sorted(keys.member.kem) == list(range(max(0, epoch - 2), epoch + 2))
        KeyRing(path).delete_before(epoch)
        assert held_epochs(path) == list(range(max(0, epoch - 1), epoch + 2))
    assert sorted(load_node_keys(path, password=b"pw").kem) == [4, 5, 6]


def test_rotation_keeps_every_other_key(folder: Path) -> None:
    """Certificate, address and the keys already announced stay as they are."""
    before = new_keys(folder / "keys")
    after = rotate_node_keys(folder / "keys")
    assert after.member.certificate == before.member.certificate
    assert after.member.kem[1] == before.member.kem[1]
    assert after.member.address == before.member.address


def test_an_interrupted_rotation_is_finished(folder: Path) -> None:
    """A crash between the new key and the new card: the next call uses that key, and skips no epoch."""
    path = folder / "keys"
    new_keys(path)
    card = (path / "card.json").read_bytes()
    keys = rotate_node_keys(path)
    (path / "card.json").write_bytes(card)
    again = rotate_node_keys(path)
    assert again.member == keys.member
    assert held_epochs(path) == [0, 1, 2]


def test_a_deleted_key_is_gone_from_its_file_too(folder: Path) -> None:
    """The bytes are overwritten before the name goes; a second name for the file shows it."""
    path = folder / "keys"
    new_keys(path)
    (path / "other").hardlink_to(path / "kem-0000000000.key")
    KeyRing(path).delete_before(2)
    assert held_epochs(path) == [1]
    assert set((path / "other").read_bytes()) == {0}
    assert not (path / "kem-0000000000.key").exists()
