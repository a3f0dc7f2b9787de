#!/usr/bin/env python3
"""Makes the known answers of vectors.rs with another implementation (`pip install cryptography`).

    python3 crates/lacuna-secure/tests/vectors.py
"""

from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

CIPHERS = {"Aes128Gcm": (AESGCM, 16), "ChaCha20Poly1305": (ChaCha20Poly1305, 32)}


def expand(secret: bytes, info: bytes, length: int) -> bytes:
    return HKDFExpand(SHA256(), length, info).derive(secret)


def packet(cipher: str, epoch: int, end: int, channel: int, number: int, head: bytes, text: bytes) -> bytes:
    algorithm, key_bytes = CIPHERS[cipher]
    secret = bytes(range(32))
    for _ in range(epoch):
        secret = expand(secret, b"lacuna epoch", 32)
    place = bytes([end, channel])
    key = expand(secret, b"lacuna packet key" + place, key_bytes)
    mask = expand(secret, b"lacuna packet nonce" + place, 12)
    nonce = bytes(a ^ b for a, b in zip(mask, number.to_bytes(12, "big")))
    sealed = algorithm(key).encrypt(nonce, text, head)
    word = (epoch % 4) << 30 | number % (1 << 30)
    return head + sealed[:-16] + word.to_bytes(4, "big") + sealed[-16:]


HEAD = bytes(range(100, 112))
TEXT = b"a packet of twenty-six byte"
for cipher in CIPHERS:
    for epoch, end, channel, number in [(0, 0, 0, 0), (0, 1, 1, 2), (1, 0, 0, 3)]:
        found = packet(cipher, epoch, end, channel, number, HEAD, TEXT).hex()
        print(f'    (Cipher::{cipher}, {epoch}, {end}, {channel}, {number},\n     "{found}"),')
