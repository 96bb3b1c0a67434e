"""What is taken of the libraries `cryptography` and `pycryptodome`, and nothing else: no cryptography is our own.

X25519 agrees on keys, HKDF derives them, ChaCha20 makes masks, ChaCha20-Poly1305 seals what passes a server, and
Shamir's scheme shares a secret. Each key is used once.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from heterophony.masking.fixed_point import Numbers

HINT = "secure sums need two libraries: pip install 'heterophony[secure]'"
SEED = 16  # bytes of a secret that is shared
PUBLIC = 32  # bytes of a public key
TAG = 16  # bytes that a seal adds


class LibraryMissing(ImportError, ValueError):
    """The libraries are not installed; the text says how to install them."""


try:
    from Crypto.Protocol.SecretSharing import Shamir
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
    from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF
except ImportError as error:
    raise LibraryMissing(f"{HINT} ({error})") from None


def derived(secret: bytes, *info: object) -> bytes:
    """Return 32 bytes that follow from a secret and from what they are for."""
    return HKDF(SHA256(), 32, None, "\x1f".join(map(str, info)).encode()).derive(secret)


def _private(seed: bytes) -> X25519PrivateKey:
    return X25519PrivateKey.from_private_bytes(derived(seed, "x25519"))


def public(seed: bytes) -> bytes:
    """Return the public key of a secret seed."""
    return _private(seed).public_key().public_bytes_raw()


def agreed(seed: bytes, other: bytes, *info: object) -> bytes:
    """Return the key that two agree on: of one's seed and the other's public key. Both come to the same."""
    return derived(_private(seed).exchange(X25519PublicKey.from_public_bytes(other)), *info)


def sealed(key: bytes, data: bytes, about: bytes) -> bytes:
    """Return data that only a holder of the key can read, bound to what they are about."""
    return ChaCha20Poly1305(key).encrypt(bytes(12), data, about)


def unsealed(key: bytes, data: bytes, about: bytes) -> bytes | None:
    """Return what was sealed; None where it was with another key, or about something else."""
    try:
        return ChaCha20Poly1305(key).decrypt(bytes(12), data, about)
    except InvalidTag:
        return None


def mask(key: bytes, count: int, bits: int) -> Numbers:
    """Return so many numbers that nobody can tell from random ones without the key."""
    stream = Cipher(ChaCha20(key, bytes(16)), None).encryptor().update(bytes(count * bits // 8))
    return np.frombuffer(stream, f"<u{bits // 8}")


def shares(secret: bytes, members: int, needed: int) -> list[bytes]:
    """Share a secret of 16 bytes among so many members, any `needed` of whom can recover it."""
    return [share for _, share in Shamir.split(needed, members, secret, False)]


def recovered(found: Mapping[int, bytes]) -> bytes:
    """Return the secret of these shares, by their places from zero."""
    return bytes(Shamir.combine([(place + 1, share) for place, share in found.items()], False))
