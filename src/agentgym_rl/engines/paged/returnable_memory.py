"""Memory that can be given back and taken again without moving.

CUDA graphs keep the addresses that they were recorded with. On a GPU the addresses are therefore
reserved once, and only the memory behind them comes and goes (CUDA's virtual memory management):
giving back and taking tens of gigabytes takes milliseconds, and no graph is recorded again.
"""

from __future__ import annotations

import ctypes
from ctypes import byref, c_int, c_size_t, c_uint64, c_ulonglong

import torch

from agentgym_rl.errors import EngineError

_OUT_OF_MEMORY = 2  # CUDA_ERROR_OUT_OF_MEMORY
_ON_DEVICE = 1  # CU_MEM_LOCATION_TYPE_DEVICE
_PINNED = 1  # CU_MEM_ALLOCATION_TYPE_PINNED
_READ_AND_WRITE = 3  # CU_MEM_ACCESS_FLAGS_PROT_READWRITE


class _Location(ctypes.Structure):
    _fields_ = [("type", c_int), ("id", c_int)]


class _Properties(ctypes.Structure):
    """CUmemAllocationProp."""

    _fields_ = [
        ("type", c_int),
        ("handle_types", c_int),
        ("location", _Location),
        ("metadata", ctypes.c_void_p),
        ("flags", ctypes.c_ubyte * 8),
    ]


class _Access(ctypes.Structure):
    """CUmemAccessDesc."""

    _fields_ = [("location", _Location), ("flags", c_int)]


class ReturnableMemory:
    """Bytes at a fixed place, all zero whenever they are taken."""

    def __init__(self, num_bytes: int, device: torch.device) -> None:
        self._memory = (
            _GpuMemory(num_bytes, device) if device.type == "cuda" else _HostMemory(num_bytes)
        )
        self.bytes = self._memory.bytes
        """View it as any type and shape; do not touch it while the memory is given back."""
        self.is_here = False
        self.take()

    def give_back(self) -> None:
        """Give the memory back; no launched work may still use it. Safe to repeat."""
        if self.is_here:
            self._memory.give_back()
            self.is_here = False

    def take(self) -> None:
        """Take memory again. Safe to repeat. Raises EngineError if there is not enough."""
        if not self.is_here:
            self._memory.take()
            self.is_here = True
            self.bytes.zero_()


class _HostMemory:
    def __init__(self, num_bytes: int) -> None:
        self._num_bytes = num_bytes
        self.bytes = torch.empty(num_bytes, dtype=torch.uint8)

    def give_back(self) -> None:
        self.bytes.untyped_storage().resize_(0)

    def take(self) -> None:
        self.bytes.untyped_storage().resize_(self._num_bytes)


class _GpuMemory:
    def __init__(self, num_bytes: int, device: torch.device) -> None:
        torch.cuda.current_stream(device).synchronize()  # from here on the driver has a context
        self._driver = ctypes.CDLL("libcuda.so.1")
        index = torch.cuda.current_device() if device.index is None else device.index
        place = _Location(_ON_DEVICE, index)
        self._properties = _Properties(type=_PINNED, location=place)
        self._access = _Access(place, _READ_AND_WRITE)
        self._is_mapped, self._handle = False, c_ulonglong()
        step = c_size_t()
        self._call("cuMemGetAllocationGranularity", byref(step), byref(self._properties), c_int(0))
        self._size = c_size_t(-(-num_bytes // step.value) * step.value)
        address, zero = c_uint64(), c_uint64(0)
        self._call("cuMemAddressReserve", byref(address), self._size, c_size_t(0), zero, zero)
        self._address = address
        self.take()
        # torch asks the driver for the device of an address, so there must be memory.
        self.bytes = torch.as_tensor(_Bytes(address.value, num_bytes), device=device)
        self.give_back()

    def give_back(self) -> None:
        self._call("cuMemUnmap", self._address, self._size)
        self._call("cuMemRelease", self._handle)
        self._is_mapped = False

    def take(self) -> None:
        if self._create() == _OUT_OF_MEMORY:
            torch.cuda.empty_cache()  # what the learner has finished with
            if self._create() == _OUT_OF_MEMORY:
                free, _ = torch.cuda.mem_get_info()
                raise EngineError(
                    f"keys and values need {self._size.value / 2**30:.1f} GiB, but the learner "
                    f"leaves {free / 2**30:.1f}: lower engine.cache_fraction"
                )
        zero = c_ulonglong(0)
        self._call("cuMemMap", self._address, self._size, c_size_t(0), self._handle, zero)
        access = byref(self._access)
        self._call("cuMemSetAccess", self._address, self._size, access, c_size_t(1))
        self._is_mapped = True

    def __del__(self) -> None:
        if self._is_mapped:
            self.give_back()
        self._driver.cuMemAddressFree(self._address, self._size)

    def _create(self) -> int:
        properties = byref(self._properties)
        create = self._driver.cuMemCreate
        status = create(byref(self._handle), self._size, properties, c_ulonglong(0))
        if status not in (0, _OUT_OF_MEMORY):
            raise _refusal("cuMemCreate", status)
        return status

    def _call(self, name: str, *args: object) -> None:
        if status := getattr(self._driver, name)(*args):
            raise _refusal(name, status)


class _Bytes:
    """Describes memory that torch has not allocated, so that it can make a tensor of it."""

    def __init__(self, address: int, num_bytes: int) -> None:
        self.__cuda_array_interface__ = {
            "version": 3,
            "typestr": "|u1",
            "shape": (num_bytes,),
            "data": (address, False),
        }


def _refusal(name: str, status: int) -> EngineError:
    return EngineError(f"the GPU's driver refused {name} with error {status}")
