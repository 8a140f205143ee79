"""Where processes meet that form a group of torch.distributed: a file, or a place on the network.

Over machines the controller has one store, of which every group uses a part of its own:
"tcp://10.0.0.1:41001/weights-3". Nobody else needs a free port that the others know.
"""

from __future__ import annotations

import fcntl
import socket
import struct
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import torch.distributed as dist

_LOOPBACK = "127.0.0.1"
_SIOCGIFADDR = 0x8915
"""Linux's request for the address of an interface."""


class MeetingPlace:
    """The store of this process; groups meet there under names that are never used twice."""

    def __init__(self, address: str) -> None:
        """`address` is what others call this machine."""
        self._address = address
        self._store = dist.TCPStore(address, 0, is_master=True, wait_for_workers=False)

    def url(self, name: str) -> str:
        return f"tcp://{self._address}:{self._store.port}/{name}"


def is_local(url: str) -> bool:
    """Whether all who meet are on this machine, so that no network is needed."""
    return url.startswith("file:")


def meet(url: str, rank: int, size: int, wait: timedelta) -> dist.Store:
    """Return what `size` processes share that call this with the same `url`.

    Raises RuntimeError where there is no such place.
    """
    parts = urlsplit(url)
    if not is_local(url):
        assert parts.hostname is not None and parts.port is not None, "a `MeetingPlace` made it"
        store = dist.TCPStore(parts.hostname, parts.port, is_master=False, timeout=wait)
        return dist.PrefixStore(parts.path, store)  # else keys of two groups would meet
    if not Path(parts.path).parent.is_dir():
        raise RuntimeError(f"{url} is in no folder")  # torch would try for ever
    found, _, _ = next(dist.rendezvous(url, rank, size, timeout=wait))
    return found


def own_address(url: str) -> str:
    """Return the address under which others who meet there reach this machine."""
    parts = urlsplit(url)
    if is_local(url):
        return _LOOPBACK
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((parts.hostname, parts.port))  # sends nothing
        return probe.getsockname()[0]


def own_interface(url: str) -> str | None:
    """Return the network interface of `own_address`; None where it cannot be told."""
    wanted = own_address(url)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            try:
                answer = fcntl.ioctl(asking.fileno(), _SIOCGIFADDR, request)
            except OSError:
                continue  # it has no address
            if socket.inet_ntoa(answer[20:24]) == wanted:
                return name
    return None
