#!/usr/bin/env python3
"""Writes known_answers.txt, which known_answers.rs compares with this crate.

An implementation of its own: no tables and nothing taken from the Rust code.

Field   GF(2^8), polynomial x^8 + x^4 + x^3 + x^2 + 1 (0x11d).
MDS     parity[i] = sum over j of data[j] / ((k + i) xor j), the rows that
        ISA-L's gf_gen_cauchy1_matrix puts below the unit matrix.
XOR     parity[i] = sum of the data[j] with j mod m = i.
Data    byte b of chunk j is bits 13 to 20 of the 32-bit number
        (j + 1) * 0x9e3779b1 + b * 0x85ebca6b.
Chunks  all of chunk_bytes but the last data chunk, of tail_bytes; it counts as
        filled up with zeros.

Each line: code, chunk_bytes, tail_bytes, then the parity chunks in hexadecimal.

Usage: python3 known_answers.py > known_answers.txt
"""

CASES = [
    ("mds", 1, 1, 5, 5),
    ("mds", 1, 3, 16, 16),
    ("mds", 2, 254 - 1, 3, 1),
    ("mds", 4, 2, 67, 67),
    ("mds", 5, 3, 67, 66),
    ("mds", 10, 4, 129, 1),
    ("mds", 17, 9, 65, 64),
    ("mds", 32, 8, 200, 77),
    ("mds", 100, 20, 33, 33),
    ("mds", 128, 127, 9, 0),
    ("mds", 254, 1, 9, 4),
    ("xor", 1, 1, 5, 5),
    ("xor", 4, 4, 20, 3),
    ("xor", 7, 3, 67, 66),
    ("xor", 32, 8, 200, 77),
    ("xor", 250, 5, 9, 9),
]


def multiply(a, b):
    product = 0
    for bit in range(8):
        if b >> bit & 1:
            product ^= a << bit
    for bit in range(14, 7, -1):
        if product >> bit & 1:
            product ^= 0x11D << (bit - 8)
    return product


def invert(a):
    return next(b for b in range(1, 256) if multiply(a, b) == 1)


def coefficient(kind, k, m, i, j):
    return invert((k + i) ^ j) if kind == "mds" else int(j % m == i)


def data_chunk(j, length):
    return [((j + 1) * 0x9E3779B1 + b * 0x85EBCA6B & 0xFFFFFFFF) >> 13 & 0xFF for b in range(length)]


def main():
    for kind, k, m, chunk_bytes, tail_bytes in CASES:
        data = [data_chunk(j, chunk_bytes if j < k - 1 else tail_bytes) for j in range(k)]
        parity = []
        for i in range(m):
            total = [0] * chunk_bytes
            for j, chunk in enumerate(data):
                c = coefficient(kind, k, m, i, j)
                products = [multiply(c, x) for x in range(256)]
                for b, x in enumerate(chunk):
                    total[b] ^= products[x]
            parity.append(bytes(total).hex())
        print(f"{kind}:{k}:{m}", chunk_bytes, tail_bytes, *parity)


main()
