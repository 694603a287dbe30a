"""Signatures of nkeys: Ed25519 (RFC 8032) in pure Python, since the standard library has none.

A signature takes some milliseconds, once per connection. Its time depends on the key, which a machine that can
measure it precisely could exploit: do not use this module to sign what an attacker chooses at will.
"""

from __future__ import annotations

import base64
import hashlib
import re

_P = 2**255 - 19
_L = 2**252 + 27742317777372353535851937790883648493
_D = -121665 * pow(121666, -1, _P) % _P
_Point = tuple[int, int, int, int]
_USER, _SEED = 20 << 3, 18 << 3  # first bytes: U and S


def _add(a: _Point, b: _Point) -> _Point:
    x = (a[1] - a[0]) * (b[1] - b[0]) % _P
    y = (a[1] + a[0]) * (b[1] + b[0]) % _P
    t = 2 * a[3] * b[3] * _D % _P
    z = 2 * a[2] * b[2] % _P
    e, f, g, h = y - x, z - t, z + t, y + x
    return (e * f % _P, g * h % _P, f * g % _P, e * h % _P)


def _multiply(n: int, a: _Point) -> _Point:
    sum_ = (0, 1, 1, 0)
    while n:
        if n & 1:
            sum_ = _add(sum_, a)
        a, n = _add(a, a), n >> 1
    return sum_


def _encode(a: _Point) -> bytes:
    inverse = pow(a[2], -1, _P)
    x, y = a[0] * inverse % _P, a[1] * inverse % _P
    return (y | (x & 1) << 255).to_bytes(32, "little")


_BASE_Y = 4 * pow(5, -1, _P) % _P
_BASE_X = 15112221349535400772501151409588531511454012693041857206046113283949847762202
_BASE: _Point = (_BASE_X, _BASE_Y, 1, _BASE_X * _BASE_Y % _P)


def _number(*parts: bytes) -> int:
    return int.from_bytes(hashlib.sha512(b"".join(parts)).digest(), "little")


class KeyPair:
    """The key of a user, made of its seed, which begins with SU. Raises ValueError for any other text."""

    def __init__(self, seed: str):
        try:
            raw = base64.b32decode(seed + "=" * (-len(seed) % 8))
        except ValueError:
            raw = b""
        if len(raw) != 36 or raw[0] & 0xF8 != _SEED or (raw[0] & 7) << 5 | raw[1] >> 3 != _USER or _crc16(raw[:-2]) != raw[-2:]:
            raise ValueError("not a seed of a NATS user: give one, which begins with SU")
        digest = hashlib.sha512(raw[2:34]).digest()
        self._scalar = int.from_bytes(digest[:32], "little") & (1 << 254) - 8 | 1 << 254
        self._prefix = digest[32:]
        self._public = _encode(_multiply(self._scalar, _BASE))

    def public(self) -> str:
        """Returns the public key, which begins with U."""
        raw = bytes([_USER]) + self._public
        return base64.b32encode(raw + _crc16(raw)).decode().rstrip("=")

    def sign(self, data: bytes) -> bytes:
        """Returns the signature of data."""
        r = _number(self._prefix, data) % _L
        commitment = _encode(_multiply(r, _BASE))
        s = (r + _number(commitment, self._public, data) % _L * self._scalar) % _L
        return commitment + s.to_bytes(32, "little")


def _crc16(data: bytes) -> bytes:
    crc = 0
    for byte in data:
        crc ^= byte << 8
        for _ in range(8):
            crc = (crc << 1 ^ 0x1021 if crc & 0x8000 else crc << 1) & 0xFFFF
    return crc.to_bytes(2, "little")


def seed_of(text: str) -> str:
    """Returns the seed in a text: a seed alone, or a creds file of `nsc`."""
    found = re.search(r"^\s*(SU[A-Z0-9]{56})\s*$", text, re.MULTILINE)
    if not found:
        raise ValueError("it has no seed of a NATS user: give one, which begins with SU")
    return found.group(1)


def jwt_of(text: str) -> str:
    """Returns the JWT in a creds file of `nsc`."""
    found = re.search(r"-+BEGIN NATS USER JWT-+\s+(\S+)\s", text)
    if not found:
        raise ValueError("it has no user JWT: give the output of `nsc generate creds`")
    return found.group(1)
