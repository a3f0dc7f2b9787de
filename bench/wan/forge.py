"""Copies packets of UDP to a host as they pass, changes each, and sends them to it, at a rate: `forge.py MBIT HOST`.

Bytes behind the first 12 are changed, so that the receiver finds the queue pair and has to open the packet; some
are sent unchanged, as replays. Runs in a host of `lacuna wan` until it is ended.
"""

import os
import random
import socket
import sys
import time

UDP = 17
HEAD = 12
TEMPLATES = 64


def packets_to(host, count):
    """Payloads of packets to a host, and the port that they go to."""
    tap = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(3))
    address = socket.inet_aton(host)
    found = []
    while len(found) < count:
        frame = tap.recv(65535)
        if len(frame) < 28 or frame[0] >> 4 != 4 or frame[9] != UDP or frame[16:20] != address:
            continue
        udp = frame[(frame[0] & 15) * 4 :]
        payload = udp[8:]
        # Several packets may be in one, as the kernel has not cut them yet.
        if len(payload) > 200:
            found.append((int.from_bytes(udp[2:4], "big"), bytes(payload[:1400])))
    tap.close()
    return found


def forged(payload):
    payload = bytearray(payload)
    if random.random() < 0.9:
        at = random.randrange(HEAD, len(payload))
        payload[at] ^= random.randrange(1, 256)
    return bytes(payload)


def main():
    rate_bits_per_s, host = float(sys.argv[1]) * 1e6, sys.argv[2]
    found = packets_to(host, TEMPLATES)
    port = found[0][0]
    packets = [forged(payload) for to, payload in found if to == port for _ in range(8)]
    out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    out.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    out.connect((host, port))
    began, sent_bits, at = time.monotonic(), 0, 0
    while os.getppid() != 1:
        due_bits = (time.monotonic() - began) * rate_bits_per_s
        # As much as is due, and no more than some packets at a time.
        while sent_bits < due_bits:
            packet = packets[at % len(packets)]
            at += 1
            sent_bits += (len(packet) + 42) * 8
            try:
                out.send(packet)
            except OSError:
                # Nobody listens any more, or the queue is full.
                pass
        time.sleep(0.0005)


main()
