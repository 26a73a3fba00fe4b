"""What pyusb leaves out of libusb 1.0: several transfers in flight, and devices given as a file descriptor.

Both go through the library that pyusb has loaded, beside pyusb: devices, descriptors, control transfers and
claims stay its own. Functions, constants and the head of `struct libusb_transfer` are from libusb.h (1.0.23
and later; they are part of its stable ABI).

Only threads that wait handle libusb's events. A callback of libusb into Python could be cut
short by Ctrl-C, which ctypes would then swallow; here it is the method of a deque, in which no line of Python
runs.
"""

from __future__ import annotations

import ctypes
import errno
import importlib
import os
import stat
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterator
from typing import Any

from sdk.errors import DeviceMissing, EnvironmentMissing, UsageError
from usbgpu.transport import bus

NO_DEVICE_DISCOVERY = 2
"""enum libusb_option: new contexts look for no devices (1.0.24: LIBUSB_OPTION_WEAK_AUTHORITY)."""
BULK = 2
"""enum libusb_transfer_type."""
ERROR_IO, ERROR_NO_DEVICE, ERROR_TIMEOUT, ERROR_OVERFLOW, ERROR_PIPE = -1, -4, -7, -8, -9
ERROR_NO_MEM = -11
STATUS = dict(
    enumerate((0, ERROR_IO, ERROR_TIMEOUT, ERROR_TIMEOUT, ERROR_PIPE, ERROR_NO_DEVICE, ERROR_OVERFLOW))
)
"""enum libusb_transfer_status as enum libusb_error; the second ERROR_TIMEOUT is that of a cancelled one."""
SLICE = 0.02
"""Seconds that a thread handles events for before it checks whether another thread has handled its own."""


class Transfer(ctypes.Structure):
    """struct libusb_transfer, without its isochronous packets."""

    _fields_ = (
        ("dev_handle", ctypes.c_void_p),
        ("flags", ctypes.c_uint8),
        ("endpoint", ctypes.c_uint8),
        ("type", ctypes.c_uint8),
        ("timeout", ctypes.c_uint),
        ("status", ctypes.c_int),
        ("length", ctypes.c_int),
        ("actual_length", ctypes.c_int),
        ("callback", ctypes.c_void_p),
        ("user_data", ctypes.c_void_p),
        ("buffer", ctypes.c_void_p),
        ("num_iso_packets", ctypes.c_int),
    )


class TimeValue(ctypes.Structure):
    """struct timeval."""

    _fields_ = (("seconds", ctypes.c_long), ("microseconds", ctypes.c_long))


CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Flying:
    """A transfer with libusb: a `pipeline.BulkTransfer`."""

    def __init__(self, address: int, buffer: Any) -> None:
        self.address = address
        self.buffer = buffer  # must not move
        self.done = False
        self.actual = 0
        self.error: Any = None
        self.ended = 0.0


class Asynchronous:
    """A `pipeline.BulkBackend` over pyusb's backend for libusb 1.0.

    Args:
        backend: pyusb's.
    """

    def __init__(self, backend: Any) -> None:
        lib = backend.lib
        self._numpy = importlib.import_module("numpy")  # has the address of any buffer
        self._context = backend.ctx
        self._ended: deque[int] = deque()
        self._callback = CALLBACK(self._ended.append)
        self._flying: dict[int, Flying] = {}
        self._lock = threading.Lock()  # over the end of a transfer
        pointer = ctypes.c_void_p
        self._alloc = _function(lib, "libusb_alloc_transfer", [ctypes.c_int], pointer)
        self._free = _function(lib, "libusb_free_transfer", [pointer], None)
        self._submit = _function(lib, "libusb_submit_transfer", [pointer])
        self._cancel = _function(lib, "libusb_cancel_transfer", [pointer])
        self._handle_events = _function(
            lib, "libusb_handle_events_timeout_completed", [pointer, ctypes.POINTER(TimeValue), pointer]
        )

    def bulk_submit(self, dev_handle: Any, ep: int, buffer: memoryview) -> Flying:
        """Begin a transfer; see `pipeline.BulkBackend`."""
        address = self._alloc(0)
        if not address:
            raise _failure(ERROR_NO_MEM)
        array = self._numpy.frombuffer(buffer, "u1") if len(buffer) else self._numpy.empty(0, "u1")
        flying = Flying(address, array)
        transfer = Transfer.from_address(address)
        transfer.dev_handle = dev_handle.handle
        transfer.endpoint = ep
        transfer.type = BULK
        transfer.timeout = 0
        transfer.length = len(buffer)
        transfer.callback = ctypes.cast(self._callback, ctypes.c_void_p)
        transfer.buffer = array.ctypes.data
        self._flying[address] = flying
        code = self._submit(address)
        if code:
            del self._flying[address]
            self._free(address)
            raise _failure(code)
        return flying

    def bulk_wait(self, transfer: Flying, seconds: float) -> None:
        """Handle libusb's events until the transfer has ended, at most that long."""
        end = time.monotonic() + seconds
        while True:
            self._take_ended()
            left = end - time.monotonic()
            if transfer.done or left < 0:
                return
            microseconds = int(min(left, SLICE) * 1e6)
            self._handle_events(self._context, TimeValue(0, microseconds), None)

    def bulk_cancel(self, transfer: Flying) -> None:
        """Cancel it."""
        with self._lock:
            if not transfer.done:
                self._cancel(transfer.address)

    def _take_ended(self) -> None:
        with self._lock:
            while self._ended:
                address = self._ended[0]
                flying = self._flying.get(address)
                if flying is not None:
                    found = Transfer.from_address(address)
                    flying.actual = found.actual_length
                    flying.error = _failure(STATUS.get(found.status, ERROR_IO)) if found.status else None
                    flying.ended = time.monotonic()
                    flying.done = True
                    del self._flying[address]
                self._ended.popleft()
                if flying is not None:  # last, so that Ctrl-C leaves a leak at worst
                    self._free(address)


_asynchronous: weakref.WeakKeyDictionary[Any, Asynchronous] = weakref.WeakKeyDictionary()
"""One for each of pyusb's: it must outlive every transfer."""


def asynchronous(backend: Any) -> Any:
    """The `pipeline.BulkBackend` over a pyusb backend, or the backend itself if it is one.

    Raises:
        EnvironmentMissing: it is pyusb's for another library.
    """
    if hasattr(backend, "bulk_submit"):
        return backend
    if not hasattr(getattr(backend, "lib", None), "libusb_submit_transfer"):
        raise EnvironmentMissing("pyusb found no libusb 1.0", hint="apt-get install libusb-1.0-0")
    if backend not in _asynchronous:
        _asynchronous[backend] = Asynchronous(backend)
    return _asynchronous[backend]


def fresh(backend: Any) -> Any:
    """Another one of pyusb's backend for libusb 1.0, which looks for devices now; of other backends None.

    libusb learns of later devices from udev. Where no udev runs, as in a container or on a small system,
    only a new context finds them.
    """
    module = importlib.import_module("usb.backend.libusb1")
    return module._LibUSB(backend.lib) if type(backend) is module._LibUSB else None


def wrapped(number: str) -> Any:
    """A pyusb backend with the one device whose file is open already, as Android hands it out.

    Android gives an app no way to look for devices; it opens the file that the user allows
    (`UsbDeviceConnection.getFileDescriptor`, `termux-usb -e`). The descriptor stays open, and its owner's.
    From now on libusb looks for no devices in this process.

    Args:
        number: of the file descriptor, in decimal.

    Raises:
        UsageError: it is not a number.
        DeviceMissing: it is not open, or is not a USB device.
        EnvironmentMissing: there is no libusb, or it is too old.
    """
    if not (number.isascii() and number.isdecimal() and len(number) < 10):
        raise UsageError(f"{number!r} is not a file descriptor number", hint="for example usb:fd=7")
    where = f"usb:fd={number}"
    try:
        mode = os.fstat(int(number)).st_mode
    except OSError as problem:
        raise DeviceMissing(
            "this file descriptor is not open",
            where=where,
            hint="the program that opened it must pass it on: termux-usb -r -e COMMAND /dev/bus/usb/...",
        ) from problem
    if not stat.S_ISCHR(mode):
        raise _no_device(where, "it is not of a device")
    bus.pyusb()
    module = importlib.import_module("usb.backend.libusb1")
    lib = _library(module)
    wrap = _function(lib, "libusb_wrap_sys_device", [ctypes.c_void_p] * 3)
    device_of = _function(lib, "libusb_get_device", [ctypes.c_void_p], ctypes.c_void_p)

    class Handle:
        """What pyusb's backend takes for a handle."""

        def __init__(self, context: Any) -> None:
            self.handle = ctypes.c_void_p()
            code = wrap(context, int(number), ctypes.byref(self.handle))
            if code:
                raise _no_device(where, str(_failure(code).strerror))
            self.devid = device_of(self.handle)

    class Backend(module._LibUSB):  # type: ignore[misc, name-defined]
        """One device, always open; opening and closing it change nothing."""

        def __init__(self) -> None:
            super().__init__(lib)
            self._opened: Handle | None = Handle(self.ctx)

        def enumerate_devices(self) -> Iterator[Any]:
            if self._opened is not None:
                yield module._Device(self._opened.devid)

        def open_device(self, dev: Any) -> Any:
            if self._opened is None:
                raise _failure(ERROR_NO_DEVICE)
            return self._opened

        def close_device(self, dev_handle: Any) -> None:
            pass

        def close(self) -> None:
            """Release the device; the file stays open."""
            opened, self._opened = self._opened, None
            if opened is not None:
                self.lib.libusb_close(opened.handle)

    try:
        return Backend()
    except bus.pyusb().core.USBError as problem:
        raise EnvironmentMissing(f"libusb does not start: {problem.strerror}", where=where) from problem


def _library(module: Any) -> Any:
    """The library as pyusb loads it, set to look for no devices before it is first used."""
    if module._lib is None:
        try:
            lib = module._load_library()
        except Exception as problem:
            raise EnvironmentMissing(
                "libusb cannot be loaded", hint="apt-get install libusb-1.0-0; Termux: pkg install libusb"
            ) from problem
        module._setup_prototypes(lib)
        module._lib = lib
    lib = module._lib
    if not hasattr(lib, "libusb_wrap_sys_device"):
        raise EnvironmentMissing(
            "this libusb accepts no file descriptors", hint="install libusb 1.0.24 or later"
        )
    # A null context stands for every one that is made later.
    _function(lib, "libusb_set_option", [ctypes.c_void_p, ctypes.c_int])(None, NO_DEVICE_DISCOVERY)
    return lib


def _function(lib: Any, name: str, arguments: list[Any], result: Any = ctypes.c_int) -> Any:
    """A function of the library with prototypes of our own: pyusb's object of it keeps its own."""
    found = lib[name]
    found.argtypes = arguments
    found.restype = result
    return found


def _failure(code: int) -> Any:
    """The exception of pyusb for an error of libusb."""
    module = importlib.import_module("usb.backend.libusb1")
    kind = bus.pyusb().core.USBTimeoutError if code == ERROR_TIMEOUT else bus.pyusb().core.USBError
    known = code in module._str_error_map
    words = module._str_error_map[code] if known else f"error {code} of libusb"
    return kind(words, code, module._libusb_errno[code] if known else errno.EIO)


def _no_device(where: str, why: str) -> DeviceMissing:
    return DeviceMissing(
        f"this file descriptor is not a USB device: {why}",
        where=where,
        hint="it must come from UsbDeviceConnection.getFileDescriptor() or termux-usb",
    )
