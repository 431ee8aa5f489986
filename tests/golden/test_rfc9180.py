"""Published vectors for what sealing rests on, and a second HPKE, written from the RFC, to hold it against.

Sources. HPKE: the vector of test-vectors.json published with RFC 9180 (cfrg/draft-irtf-cfrg-hpke, 5f503c5) for mode
base, DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, AES-256-GCM. X-Wing: draft-connolly-cfrg-xwing-kem, appendix C, first
vector. The vectors of HPKE carry associated data, which the library's public call does not take; so the vector
anchors the second implementation, and that one is held against the library both ways.
"""

from __future__ import annotations

import hashlib
import hmac
import os

import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hpke
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey, MLKEM768PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from veilwalk.node.sealing._context import SealContext
from veilwalk.node.sealing._envelope import open_header, seal
from veilwalk.node.sealing._kem import (
    HYBRID_HPKE,
    Suite,
    kem_private_key,
    kem_public_bytes,
    kem_public_key,
    new_kem_secret,
)
from veilwalk.node.sealing._slots import opened_slots, sealed_slots

RFC = {
    "info": "4f6465206f6e2061204772656369616e2055726e",
    "skRm": "497b4502664cfea5d5af0b39934dac72242a74f8480451e1aee7d6a53320333d",
    "pkRm": "430f4b9859665145a6b1ba274024487bd66f03a2dd577d7753c68d7d7d00c00c",
    "enc": "6c93e09869df3402d7bf231bf540fadd35cd56be14f97178f0954db94b7fc256",
    "pt": "4265617574792069732074727574682c20747275746820626561757479",
    "aad": "436f756e742d30",
    "ct": "e5d84cd531cfb583096e7cfa9641bd3079cf3a91cda813c52deb5f512be9931980a41de125a925cdad859d5b7a",
}
VECTOR = {name: bytes.fromhex(value) for name, value in RFC.items()}

XWING_SEED = bytes.fromhex("7f9c2ba4e88f827d616045507605853ed73b8093f6efbc88eb1a6eacfa66ef26")
XWING_PUBLIC_START = bytes.fromhex("e2236b35a8c24b39b10aa1323a96a919a2ced88400633a7b07131713fc14b2b5")
XWING_PUBLIC_END = bytes.fromhex("03de5b69859edb06eff389b27dce59844570216223593d4ba32d9abac8cd049040ef6534")
XWING_SHARED = bytes.fromhex("d2df0522128f09dd8e2c92b1e905c793d8f57a54c3da25861f10bf4ca613e384")
XWING_CIPHERTEXT = bytes.fromhex("""
    b83aa828d4d62b9a83ceffe1d3d3bb1ef31264643c070c5798927e41fb07914a273f8f96
    e7826cd5375a283d7da885304c5de0516a0f0654243dc5b97f8bfeb831f68251219aabdd
    723bc6512041acbaef8af44265524942b902e68ffd23221cda70b1b55d776a92d1143ea3
    a0c475f63ee6890157c7116dae3f62bf72f60acd2bb8cc31ce2ba0de364f52b8ed38c79d
    719715963a5dd3842d8e8b43ab704e4759b5327bf027c63c8fa857c4908d5a8a7b88ac7f
    2be394d93c3706ddd4e698cc6ce370101f4d0213254238b4a2e8821b6e414a1cf20f6c12
    44b699046f5a01caa0a1a55516300b40d2048c77cc73afba79afeea9d2c0118bdf2adb88
    70dc328c5516cc45b1a2058141039e2c90a110a9e16b318dfb53bd49a126d6b73f215787
    517b8917cc01cabd107d06859854ee8b4f9861c226d3764c87339ab16c3667d2f49384e5
    5456dd40414b70a6af841585f4c90c68725d57704ee8ee7ce6e2f9be582dbee985e038ff
    c346ebfb4e22158b6c84374a9ab4a44e1f91de5aac5197f89bc5e5442f51f9a5937b102b
    a3beaebf6e1c58380a4a5fedce4a4e5026f88f528f59ffd2db41752b3a3d90efabe46389
    9b7d40870c530c8841e8712b733668ed033adbfafb2d49d37a44d4064e5863eb0af0a08d
    47b3cc888373bc05f7a33b841bc2587c57eb69554e8a3767b7506917b6b70498727f16ea
    c1a36ec8d8cfaf751549f2277db277e8a55a9a5106b23a0206b4721fa9b3048552c5bd5b
    594d6e247f38c18c591aea7f56249c72ce7b117afcc3a8621582f9cf71787e183dee0936
    7976e98409ad9217a497df888042384d7707a6b78f5f7fb8409e3b535175373461b77600
    2d799cbad62860be70573ecbe13b246e0da7e93a52168e0fb6a9756b895ef7f0147a0dc8
    1bfa644b088a9228160c0f9acf1379a2941cd28c06ebc80e44e17aa2f8177010afd78a97
    ce0868d1629ebb294c5151812c583daeb88685220f4da9118112e07041fcc24d5564a99f
    dbde28869fe0722387d7a9a4d16e1cc8555917e09944aa5ebaaaec2cf62693afad42a3f5
    18fce67d273cc6c9fb5472b380e8573ec7de06a3ba2fd5f931d725b493026cb0acbd3fe6
    2d00e4c790d965d7a03a3c0b4222ba8c2a9a16e2ac658f572ae0e746eafc4feba023576f
    08942278a041fb82a70a595d5bacbf297ce2029898a71e5c3b0d1c6228b485b1ade509b3
    5fbca7eca97b2132e7cb6bc465375146b7dceac969308ac0c2ac89e7863eb8943015b243
    14cafb9c7c0e85fe543d56658c213632599efabfc1ec49dd8c88547bb2cc40c9d38cbd30
    99b4547840560531d0188cd1e9c23a0ebee0a03d5577d66b1d2bcb4baaf21cc7fef1e038
    06ca96299df0dfbc56e1b2b43e4fc20c37f834c4af62127e7dae86c3c25a2f696ac8b589
    dec71d595bfbe94b5ed4bc07d800b330796fda89edb77be0294136139354eb8cd3759157
    8f9c600dd9be8ec6219fdd507adf3397ed4d68707b8d13b24ce4cd8fb22851bfe9d63240
    7f31ed6f7cb1600de56f17576740ce2a32fc5145030145cfb97e63e0e41d354274a079d3
    e6fb2e15
""")

DHKEM, XWING = 0x0020, 0x647A
X25519_HPKE = hpke.Suite(hpke.KEM.X25519, hpke.KDF.HKDF_SHA256, hpke.AEAD.AES_256_GCM)
#: The key of a message whose ephemeral secret is 0, 1, ... 31; and of a period's secret the slot of the key 64, 65, ...
#: for the secret 32, 33, ... in epoch 3 of the run "rrrrrrrrrrrrrrrr", in buckets of 1 KiB.
EPHEMERAL = "8f40c5adb68f25624ae5b214ea767a6ec94d829d3d7b5e1ad1ba6f3e2138285f"
SUITE_3 = [
    (
        b"",
        (
            "dafe70601a80126a773f95073699a059fee47bd9466429835a6ea7d5e8999b39011a83830109947e3d64a9e7cb02ce42"
            "0a776d7e425203b050acf75e5a13abf99be1d26815abc63be696ff5883e99fcd"
        ),
    ),
    (
        bytes(range(100, 132)),
        (
            "d71f1880fd3fd3fea969f965706e962cf0fc2d25f71b81e295ca6f87820e89bd25d2190e6dafd83cc55a828cbc9faa6a"
            "5b802ecb03326b5efe9b3bc7de57e96b8160082006cbad7fa813f98d1d0ab9aa"
        ),
    ),
]
HKDF_SHA256, AES_256_GCM = 0x0001, 0x0002


# ---- HPKE base mode from RFC 9180, sections 4, 5.1 and 5.2; X-Wing from its draft --------------------------------


def hkdf_extract(salt: bytes, ikm: bytes) -> bytes:
    return hmac.digest(salt or bytes(32), ikm, "sha256")


def hkdf_expand(prk: bytes, info: bytes, length: int) -> bytes:
    out, block = b"", b""
    for index in range(1, -(-length // 32) + 1):
        block = hmac.digest(prk, block + info + bytes([index]), "sha256")
        out += block
    return out[:length]


def labeled_extract(suite_id: bytes, salt: bytes, label: bytes, ikm: bytes) -> bytes:
    return hkdf_extract(salt, b"HPKE-v1" + suite_id + label + ikm)


def labeled_expand(suite_id: bytes, prk: bytes, label: bytes, info: bytes, length: int) -> bytes:
    return hkdf_expand(prk, length.to_bytes(2, "big") + b"HPKE-v1" + suite_id + label + info, length)


def dhkem_shared(dh: bytes, enc: bytes, public: bytes) -> bytes:
    suite_id = b"KEM" + DHKEM.to_bytes(2, "big")
    prk = labeled_extract(suite_id, b"", b"eae_prk", dh)
    return labeled_expand(suite_id, prk, b"shared_secret", enc + public, 32)


def key_and_nonce(kem: int, shared: bytes, info: bytes) -> tuple[bytes, bytes]:
    ids = (kem, HKDF_SHA256, AES_256_GCM)
    suite_id = b"HPKE" + b"".join(number.to_bytes(2, "big") for number in ids)
    psk_id_hash = labeled_extract(suite_id, b"", b"psk_id_hash", b"")
    context = b"\x00" + psk_id_hash + labeled_extract(suite_id, b"", b"info_hash", info)
    secret = labeled_extract(suite_id, shared, b"secret", b"")
    key = labeled_expand(suite_id, secret, b"key", context, 32)
    return key, labeled_expand(suite_id, secret, b"base_nonce", context, 12)


def xwing_combine(lattice: bytes, curve: bytes, curve_ciphertext: bytes, curve_public: bytes) -> bytes:
    return hashlib.sha3_256(lattice + curve + curve_ciphertext + curve_public + rb"\.//^" + b"\\").digest()


def decapsulate(secret: bytes, enc: bytes) -> bytes:
    curve = X25519PrivateKey.from_private_bytes(secret[-32:])
    public = curve.public_key().public_bytes_raw()
    dh = curve.exchange(X25519PublicKey.from_public_bytes(enc[-32:]))
    lattice = MLKEM768PrivateKey.from_seed_bytes(secret[:64]).decapsulate(enc[:-32])
    return xwing_combine(lattice, dh, enc[-32:], public)


def encapsulate(public: bytes) -> tuple[bytes, bytes]:
    ephemeral = X25519PrivateKey.generate()
    enc = ephemeral.public_key().public_bytes_raw()
    dh = ephemeral.exchange(X25519PublicKey.from_public_bytes(public[-32:]))
    lattice, ciphertext = MLKEM768PublicKey.from_public_bytes(public[:-32]).encapsulate()
    return ciphertext + enc, xwing_combine(lattice, dh, enc, public[-32:])


# ---- the vectors -------------------------------------------------------------------------------------------------


def test_the_second_hpke_opens_the_published_vector() -> None:
    """Key schedule, encapsulation and AES-256-GCM of the oracle are the RFC's, and so are the library's."""
    private = X25519PrivateKey.from_private_bytes(VECTOR["skRm"])
    dh = private.exchange(X25519PublicKey.from_public_bytes(VECTOR["enc"]))
    shared = dhkem_shared(dh, VECTOR["enc"], VECTOR["pkRm"])
    key, nonce = key_and_nonce(DHKEM, shared, VECTOR["info"])
    assert AESGCM(key).decrypt(nonce, VECTOR["ct"], VECTOR["aad"]) == VECTOR["pt"]
    assert kem_public_bytes(Suite.X25519, VECTOR["skRm"]) == VECTOR["pkRm"]


def test_the_library_opens_the_published_vector() -> None:
    """Through the library's own door for associated data, which it keeps for its tests."""
    from cryptography.hazmat.bindings._rust import openssl

    decrypt = openssl.hpke._decrypt_with_aad
    key = X25519PrivateKey.from_private_bytes(VECTOR["skRm"])
    sealed = VECTOR["enc"] + VECTOR["ct"]
    assert decrypt(X25519_HPKE, sealed, key, VECTOR["info"], VECTOR["aad"]) == VECTOR["pt"]
    with pytest.raises(InvalidTag):
        decrypt(X25519_HPKE, sealed, key, VECTOR["info"], VECTOR["aad"] + b"0")


def test_xwing_is_the_draft_s() -> None:
    """Its seed gives our 96 bytes of secret; public key, ciphertext and shared secret follow."""
    secret = hashlib.shake_256(XWING_SEED).digest(96)
    public = kem_public_bytes(Suite.HYBRID, secret)
    assert public.startswith(XWING_PUBLIC_START)
    assert public.endswith(XWING_PUBLIC_END)
    assert decapsulate(secret, XWING_CIPHERTEXT) == XWING_SHARED


def test_library_and_oracle_open_each_other() -> None:
    """What either seals, the other opens, with the same context only."""
    secret, info, plain = new_kem_secret(Suite.HYBRID), os.urandom(40), os.urandom(512)
    public, private = kem_public_bytes(Suite.HYBRID, secret), kem_private_key(Suite.HYBRID, secret).whole
    sealed = HYBRID_HPKE.encrypt(plain, kem_public_key(Suite.HYBRID, public), info=info)
    key, nonce = key_and_nonce(XWING, decapsulate(secret, sealed[:1120]), info)
    assert AESGCM(key).decrypt(nonce, sealed[1120:], None) == plain

    enc, shared = encapsulate(public)
    key, nonce = key_and_nonce(XWING, shared, info)
    theirs = enc + AESGCM(key).encrypt(nonce, plain, None)
    assert HYBRID_HPKE.decrypt(theirs, private, info=info) == plain
    with pytest.raises(InvalidTag):
        HYBRID_HPKE.decrypt(theirs, private, info=info + b"0")


@pytest.mark.parametrize("period", [b"", bytes(range(32))])
@pytest.mark.parametrize("recipients", [1, 3])
@pytest.mark.parametrize("suite", Suite)
def test_a_sealed_message_reads_as_the_format_says(suite: Suite, recipients: int, period: bytes) -> None:
    """A whole message taken apart with primitives only: hints, slots, header fields, both chunks and the padding."""
    secrets = [new_kem_secret(suite) for _ in range(min(recipients, 2))]
    context = SealContext(
        run_id=b"r" * 16,
        suite=suite,
        epoch=258,
        bucket_bytes=320 * 1024,
        recipients=recipients,
        secret=period,
    )
    body = os.urandom(300_000)
    update_id = bytes(range(16))
    publics = [kem_public_bytes(suite, secret) for secret in secrets]
    message = seal(context, publics, walk_tag=b"walk-tag", iteration=7, body=body, final=True, update_id=update_id)

    clear = bytes([3, suite, 258 % 256, 0, 0x84])
    assert message[:5] == clear  # bucket code: (16 + 4) << (6 + 8) = 327,680
    counted = (258).to_bytes(8, "big") + recipients.to_bytes(2, "big")
    info = b"veilwalk/3" + clear + counted + b"r" * 16
    ephemeral, size = message[5:37], 80 if suite is Suite.X25519 else 1201
    end = 37 + recipients * size
    slots = [message[at : at + size] for at in range(37, end, size)]
    header_keys = []
    for secret in secrets:
        opened = [slot_content(context, secret, ephemeral, slot, info) for slot in slots]
        (plain,) = [found for found in opened if found is not None]
        assert plain[:32] == bytes(32)
        header_keys.append(plain[32:])
    assert len(set(header_keys)) == 1
    header = AESGCM(header_keys[0]).decrypt(bytes(12), message[end : end + 144], message[:end])
    assert header[:32] == bytes(32)
    assert header[64:80] == update_id
    assert header[80] == 1
    assert header[81:89] == b"walk-tag"
    assert int.from_bytes(header[89:93], "big") == 7
    assert int.from_bytes(header[93:101], "big") == len(body)
    assert header[101:] == bytes(27)

    sealed, chunk = message[end + 144 :], 256 * 1024 + 16
    cipher = AESGCM(header[32:64])
    first = cipher.decrypt(bytes(12), sealed[:chunk], None)
    second = cipher.decrypt(bytes(10) + b"\x01\x01", sealed[chunk:], None)
    assert first + second == body + bytes(320 * 1024 - len(body))


def slot_content(context: SealContext, secret: bytes, ephemeral: bytes, slot: bytes, info: bytes) -> bytes | None:
    curve = X25519PrivateKey.from_private_bytes(secret[-32:])
    shared, public = curve.exchange(X25519PublicKey.from_public_bytes(ephemeral)), curve.public_key().public_bytes_raw()
    key, nonce = hkdf_expand(hkdf_extract(context.secret, shared), info + ephemeral + public, 32), bytes(12)
    if context.suite is Suite.HYBRID:
        if slot[:1] != key[:1]:
            return None
        key, nonce = key_and_nonce(XWING, decapsulate(secret, slot[1:1121]), info + context.secret)
        slot = slot[1121:]
    try:
        return AESGCM(key).decrypt(nonce, slot, None)
    except InvalidTag:
        return None


def test_the_parts_of_suite_3_are_those_of_their_standards() -> None:
    """X25519 of RFC 7748 (section 6.1), HKDF of RFC 5869 (case 1), AES-256-GCM of NIST (case 14 of its submission)."""
    bob = X25519PrivateKey.from_private_bytes(
        bytes.fromhex("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb")
    )
    alice = bytes.fromhex("8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a")
    shared = "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742"
    assert bob.exchange(X25519PublicKey.from_public_bytes(alice)).hex() == shared
    salt, info = bytes(range(13)), bytes(range(0xF0, 0xFA))
    expected = "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865"
    assert HKDF(algorithm=SHA256(), length=42, salt=salt, info=info).derive(b"\x0b" * 22).hex() == expected
    assert hkdf_expand(hkdf_extract(salt, b"\x0b" * 22), info, 42).hex() == expected
    boxed = AESGCM(bytes(32)).encrypt(bytes(12), bytes(16), None)
    assert boxed.hex() == "cea7403d4d606b6e074ec5d3baf39d18d0d1c8a799996bf0265b98b5d48ab919"


@pytest.mark.parametrize("suite_3", SUITE_3)
def test_suite_3_is_as_it_was(suite_3: tuple[bytes, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A slot of fixed keys, with a period's secret and without."""
    period, expected = suite_3
    context = SealContext(run_id=b"r" * 16, suite=Suite.X25519, epoch=3, bucket_bytes=1024, recipients=1, secret=period)
    public = kem_public_bytes(Suite.X25519, bytes(range(32, 64)))
    monkeypatch.setattr(os, "urandom", lambda size: bytes(range(size)))
    sealed = sealed_slots(context, [public], bytes(range(64, 96)))
    assert sealed.hex() == EPHEMERAL + expected


# ---- one ciphertext for two keys ---------------------------------------------------------------------------------


def gf_multiply(x: int, y: int) -> int:
    """The product in GCM's field; bit 127 is the coefficient of 1."""
    product = 0
    for bit in range(127, -1, -1):
        if y >> bit & 1:
            product ^= x
        x = x >> 1 ^ (0xE1 << 120 if x & 1 else 0)
    return product


def gf_power(x: int, exponent: int) -> int:
    result = 1 << 127
    while exponent:
        if exponent & 1:
            result = gf_multiply(result, x)
        x, exponent = gf_multiply(x, x), exponent >> 1
    return result


def block_cipher(key: bytes, block: bytes) -> bytes:
    encryptor = Cipher(algorithms.AES(key), modes.ECB()).encryptor()  # noqa: S305  one block: GCM from its parts
    return encryptor.update(block) + encryptor.finalize()


def two_key_ciphertext(
    keys: list[tuple[bytes, bytes]], plain: bytes, free_block: int, associated: bytes = b""
) -> bytes:
    """A ciphertext and tag that AES-GCM accepts under both keys; ``plain`` under the first, but for one block."""
    (key, nonce), _ = keys
    boxed = bytearray(AESGCM(key).encrypt(nonce, plain, None)[:-16])
    padded = associated.ljust(-(-len(associated) // 16) * 16, b"\0")
    boxed[16 * free_block : 16 * free_block + 16] = bytes(16)
    hashed = padded + boxed
    blocks = [int.from_bytes(hashed[at : at + 16], "big") for at in range(0, len(hashed), 16)]
    blocks.append(8 * len(associated) << 64 | 8 * len(boxed))
    free = len(padded) // 16 + free_block
    difference = weight = 0
    for key, nonce in keys:
        h = int.from_bytes(block_cipher(key, bytes(16)), "big")
        for index, block in enumerate(blocks):
            difference ^= gf_multiply(block, gf_power(h, len(blocks) - index))
        difference ^= int.from_bytes(block_cipher(key, nonce + b"\x00\x00\x00\x01"), "big")
        weight ^= gf_power(h, len(blocks) - free)
    # The free block weighs in with the sum of both powers: divide, by Fermat.
    solved = gf_multiply(difference, gf_power(weight, (1 << 128) - 2))
    boxed[16 * free_block : 16 * free_block + 16] = solved.to_bytes(16, "big")
    # The tag is what the encryption of the plaintext this amounts to carries.
    key, nonce = keys[0]
    stream = AESGCM(key).encrypt(nonce, bytes(len(boxed)), None)
    return AESGCM(key).encrypt(nonce, bytes(a ^ b for a, b in zip(boxed, stream[:-16], strict=True)), associated)


def derive_slot_key(context: SealContext, ephemeral: X25519PrivateKey, public: bytes) -> bytes:
    shown = ephemeral.public_key().public_bytes_raw()
    shared = ephemeral.exchange(X25519PublicKey.from_public_bytes(public))
    return hkdf_expand(hkdf_extract(context.secret, shared), context.info + shown + public, 32)


def test_no_slot_opens_under_two_keys() -> None:
    """A malicious sender can make a slot that opens for two members; the zero bytes let it be one of them only."""
    context = SealContext(run_id=os.urandom(16), suite=Suite.X25519, epoch=0, bucket_bytes=16 * 1024)
    secrets = [new_kem_secret(Suite.X25519) for _ in range(2)]
    publics = [kem_public_bytes(Suite.X25519, secret) for secret in secrets]
    honest = seal(context, publics[:1], walk_tag=bytes(8), iteration=0, body=b"x")
    first, second = (kem_private_key(Suite.X25519, secret) for secret in secrets)

    ephemeral = X25519PrivateKey.generate()
    keys = [derive_slot_key(context, ephemeral, public) for public in publics]
    # Block 2 is the first half of the header's key, which may be anything.
    crafted = two_key_ciphertext([(key, bytes(12)) for key in keys], bytes(32) + os.urandom(32), free_block=2)
    front = context.clear + ephemeral.public_key().public_bytes_raw() + crafted
    message = memoryview(front + honest[context.geometry.front_bytes :])

    # The attack works on AES-GCM itself: without the check below, two members would open this.
    assert AESGCM(keys[0]).decrypt(bytes(12), crafted, None)[:32] == bytes(32)
    assert len(AESGCM(keys[1]).decrypt(bytes(12), crafted, None)) == 64
    assert len(list(opened_slots(context, first, message))) == 1
    assert not list(opened_slots(context, second, message))


def test_no_header_opens_under_two_keys() -> None:
    """A malicious sender gives two recipients two keys, and a header that AES-GCM opens with both: one reads it."""
    context = SealContext(
        run_id=os.urandom(16),
        suite=Suite.X25519,
        epoch=0,
        bucket_bytes=16 * 1024,
        recipients=2,
    )
    secrets = [new_kem_secret(Suite.X25519) for _ in range(2)]
    publics = [kem_public_bytes(Suite.X25519, secret) for secret in secrets]
    keys = [os.urandom(32) for _ in range(2)]
    ephemeral = X25519PrivateKey.generate()
    front = context.clear + ephemeral.public_key().public_bytes_raw()
    for public, key in zip(publics, keys, strict=True):
        front += AESGCM(derive_slot_key(context, ephemeral, public)).encrypt(bytes(12), bytes(32) + key, None)
    boxed = two_key_ciphertext([(key, bytes(12)) for key in keys], bytes(128), free_block=2, associated=front)
    message = (front + boxed).ljust(context.message_bytes, b"\0")
    for key in keys:
        assert len(AESGCM(key).decrypt(bytes(12), boxed, front)) == 128
    opened = [open_header(context, kem_private_key(Suite.X25519, secret), message) for secret in secrets]
    assert opened[0] is not None
    assert opened[1] is None
