"""The bench: a device under test, what checks do with it, and what they require of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

from firmware.protocol import requests
from firmware.protocol.requests import VendorRequest
from sdk.errors import DeviceFailed
from usbgpu.transport import Identity, NotSent, Speed, Stalled, TimedOut, Transport

SHORT = 1.0
"""Seconds after which a request counts as never answered, where the specification leaves it open."""
MOMENTS, MOMENT = 200, 7e-8
"""How often, and with how many seconds more each time, a request is sent while the firmware is busy."""
REFUSAL = 5.0
"""Seconds within which a device must refuse or answer a standard request (USB 2.0, 9.2.6.4)."""


class Failed(Exception):
    """The device does not do what the check says."""


class NotReached(Exception):
    """What a check relies on does not work, which another check has reported."""


class Bench:
    """A device under test, and what most checks do with it.

    Args:
        device: open.
        identity: what it is.

    Attributes:
        device: as given; so is `identity`.
        high: whether the link runs at High Speed.
        on_sleep: called after each sleep of a check.
        kept_back: requests that the host's system did not send.
        check: name of the check that runs.
        broken: the check that reported it, for each request that checks rely on and that fails.
        restless_depth: not 0 while what the device answers depends on time: see `restless`.
        endpoint: whether the emulator's test endpoint is on bus 4; None before `pcie.has_endpoint`.
    """

    def __init__(self, device: Transport, identity: Identity) -> None:
        self.device = device
        self.identity = identity
        self.high = device.speed is Speed.HIGH
        self.kept_back = 0
        self.check = ""
        self.broken: dict[str, str] = {}
        self._given_up: set[str] = set()
        self.restless_depth = 0
        self.endpoint: bool | None = None
        self.on_sleep: list[Callable[[float], None]] = []

    def sleep(self, seconds: float) -> None:
        """Let `seconds` of the device's time pass."""
        self.device.clock.sleep(seconds)
        for listener in self.on_sleep:
            listener(seconds)

    @contextmanager
    def relied_on(self, request: str) -> Iterator[None]:
        """Inside, a request is sent that many checks rely on, and that one of them may find broken.

        The first check that finds it so fails. The next one tries again; if it still fails, that check and
        all later ones are not reached, and it is not sent again.

        Raises:
            NotReached: an earlier check has reported the failure.
            DeviceFailed: the request failed; it has now been reported.
        """
        known = self.broken.get(request)
        reported = NotReached(f"{request} failed in the check {known!r}")
        if request in self._given_up:
            raise reported
        try:
            yield
        except DeviceFailed:
            if known is not None and known != self.check:
                self._given_up.add(request)
                raise reported from None
            self.broken[request] = self.check
            raise

    # -- requests ---------------------------------------------------------------------------------------

    def vendor_in(self, request: VendorRequest, value: int = 0, index: int = 0, length: int = 0) -> bytes:
        """A vendor request towards the host."""
        return self.device.control_in(request.request_type, request.code, value, index, length)

    def vendor_out(
        self,
        request: VendorRequest,
        value: int = 0,
        index: int = 0,
        data: bytes = b"",
        timeout: float = REFUSAL,
    ) -> None:
        """A vendor request towards the device."""
        self.device.control_out(request.request_type, request.code, value, index, data, timeout=timeout)

    def peek(self, address: int, length: int = 1, bank: int = 0) -> bytes:
        """XDATA, by E4."""
        return self.vendor_in(requests.XDATA_READ, address, bank << 8, length)

    def poke(self, address: int, data: bytes, bank: int = 0) -> None:
        """XDATA, by E5, byte by byte."""
        for place, byte in enumerate(data, address):
            self.vendor_out(requests.XDATA_WRITE, place, bank << 8 | byte)

    def standard_in(
        self, recipient: int, request: int, value: int = 0, index: int = 0, length: int = 0
    ) -> bytes:
        """A standard request towards the host."""
        return self.device.control_in(0x80 | recipient, request, value, index, length, timeout=REFUSAL)

    def standard_out(
        self, recipient: int, request: int, value: int = 0, index: int = 0, data: bytes = b""
    ) -> None:
        """A standard request towards the device."""
        self.device.control_out(recipient, request, value, index, data, timeout=REFUSAL)

    # -- what must be -----------------------------------------------------------------------------------

    def refuses(
        self, request_type: int, request: int, value: int = 0, index: int = 0, length_or_data: int | bytes = 0
    ) -> None:
        """The device must stall this request, and answer the next.

        The host's system may not send it: Linux does not if there is no such interface or endpoint.
        """
        text = f"{request_type:02X}:{request:02X}:{value:04X}:{index:04X}"
        try:
            if isinstance(length_or_data, int):
                answer = self.device.control_in(
                    request_type, request, value, index, length_or_data, timeout=REFUSAL
                )
                fail(f"{text} is not stalled, but answered with {len(answer)} bytes")
            self.device.control_out(request_type, request, value, index, length_or_data, timeout=REFUSAL)
            fail(f"{text} is not stalled, but accepted")
        except Stalled:
            pass
        except NotSent:
            self.kept_back += 1
        except TimedOut:
            fail(f"{text} is neither stalled nor answered within {REFUSAL:g} s")
        self.alive()

    def alive(self) -> None:
        """EP0 must answer."""
        try:
            raw = self.device.descriptor(1, 0, 18)
        except DeviceFailed as problem:
            fail(f"EP0 no longer answers: {problem.message}")
        equal("length of the device descriptor", len(raw), 18)

    def silent(self, endpoint: int, data_or_length: bytes | int, timeout: float = 0.05) -> None:
        """A bulk endpoint must leave a transfer pending: none of it may pass."""
        try:
            if isinstance(data_or_length, int):
                found = self.device.bulk_in(data_or_length, endpoint=endpoint, timeout=timeout)
                fail(f"EP {endpoint:#04x} gave {len(found)} bytes without being armed")
            self.device.bulk_out(data_or_length, endpoint=endpoint, timeout=timeout)
            fail(f"EP {endpoint:#04x} took {len(data_or_length)} bytes without being armed")
        except TimedOut as problem:
            if problem.transferred:
                fail(f"EP {endpoint:#04x} let {problem.transferred} bytes pass without being armed")

    @contextmanager
    def restless(self) -> Iterator[None]:
        """What the device answers meanwhile depends on time: a replay of the trace does not compare it."""
        self.restless_depth += 1
        try:
            yield
        finally:
            self.restless_depth -= 1


def fail(why: str) -> NoReturn:
    """End the check: the device breaks the rule."""
    raise Failed(why)


def require(condition: object, why: str) -> None:
    """Fail unless the condition holds."""
    if not condition:
        fail(why)


def equal(what: str, found: object, expected: object) -> None:
    """Fail unless both are equal."""
    if found != expected:
        fail(f"{what} is {_shown(found)}, not {_shown(expected)}")


def same_bytes(what: str, found: bytes, expected: bytes) -> None:
    """Fail unless both are equal; names the first difference."""
    if found == expected:
        return
    if len(found) != len(expected):
        fail(f"{what} has {len(found)} bytes, not {len(expected)}")
    place = next(i for i, (one, other) in enumerate(zip(found, expected, strict=True)) if one != other)
    fail(f"{what}: byte {place:#x} is {found[place]:#04x}, not {expected[place]:#04x}")


def pattern(size: int, seed: int = 0) -> bytes:
    """Bytes that differ from their neighbours, from packet to packet, and from slot to slot."""
    return bytes((7 * i + (i >> 8) + (i >> 14) * 31 + seed) & 0xFF for i in range(size))


def _shown(value: object) -> str:
    if isinstance(value, bytes):
        return value.hex(" ") or "nothing"
    return (
        f"{value:#x}" if isinstance(value, int) and not isinstance(value, bool) and value > 9 else str(value)
    )
