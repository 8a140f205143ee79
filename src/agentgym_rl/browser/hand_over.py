"""Becomes Chromium after a swap of its pipes: `python hand_over.py SOCKET CHROMIUM ARGUMENTS`.

Playwright starts it as if it were Chromium, with its own pipes as 3 and 4. They go to the process
that listens at SOCKET (wire.py), and what comes back for them is what Chromium will use.
"""

from __future__ import annotations

import os
import socket
import sys


def main() -> None:
    address, program, *arguments = sys.argv[1:]
    with socket.socket(socket.AF_UNIX) as wire:
        wire.connect(address)
        socket.send_fds(wire, [b"."], [3, 4])
        _, given, _, _ = socket.recv_fds(wire, 1, 2)
    if len(given) != 2:
        sys.exit("there is nobody to talk to")
    for number, end in zip((3, 4), given, strict=True):
        os.dup2(end, number)
        os.close(end)
    os.execv(program, [program, *arguments])


if __name__ == "__main__":
    main()
