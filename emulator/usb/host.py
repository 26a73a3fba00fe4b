"""A host port with its controller: makes transfers (`wire.UsbDevice`) out of a device's transactions.

What hardware does: it schedules transactions, one control transfer at a time and a queue per bulk endpoint,
obeys NAK and STALL, and remembers what a host controller remembers of the device: its address, its
configuration, and which endpoints are halted. Software's part, enumeration, is `standard.enumerate_device`.

Terms are those of the USB 3.2 and 2.0 specifications; times are rows of `emulator.usb.timing`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from emulator.core.clock import Event
from emulator.usb import standard, timing
from emulator.usb.bulk import BulkPipe
from emulator.usb.control import ControlPipe
from emulator.usb.pump import Pump, Waiter, World, ticks
from emulator.usb.standard import Descriptors, RequestCode
from emulator.usb.wire import Clock, Function, Outcome, Setup, Speed, Spoilt, Stall, Transfer
from sdk.errors import DeviceFailed, UsageError

FIRST_ADDRESS = 2
"""The address a device gets if none is chosen; 1 is the root hub's."""


class Observer(Protocol):
    """Watches the traffic of a port: a capture file. Called in the pump's thread."""

    def submitted(self, transfer: Transfer, address: int) -> None:
        """A transfer to the device of that address begins, at the clock `transfer.submitted`."""

    def ended(self, transfer: Transfer, address: int) -> None:
        """It has ended, at the clock `transfer.completed`."""


class Host:
    """A port, its controller, and the device that is plugged into it. Safe to use from several threads.

    Args:
        function: the device; `plug` connects it.
        world: what lets virtual time pass.
        best: the fastest link that the port allows.

    Attributes:
        clock: virtual time.
        pump: what lets it pass; `post` runs an action on the device in the world's thread of execution.
        best: as given; a change counts from the next `plug` on.
        attachments: how often a device has attached after there was none.
        address: of the device, 0 until SET_ADDRESS.
        configuration: value of the last SET_CONFIGURATION, 0 for none.
        observers: watch the traffic.
        bulk_transfers: how many have been submitted.
        spoilt: what is to befall bulk transfers, by their numbers.
        luck: what befalls one for which `spoilt` has nothing; asked once for each.
        reasons: why a transfer on an endpoint (None: why nothing attaches) does not go on, in sentences.
    """

    def __init__(self, function: Function, world: World, *, best: Speed = Speed.SUPER_PLUS) -> None:
        self.pump = Pump(world)
        self.clock: Clock = self.pump
        self.best = best
        self.attachments = 0
        self.address = 0
        self.configuration = 0
        self.observers: list[Observer] = []
        self.bulk_transfers = 0
        self.spoilt: dict[int, Spoilt] = {}
        self.luck: Callable[[], Spoilt | None] = lambda: None
        self.reasons: Callable[[int | None], Sequence[str]] = lambda endpoint: ()
        self._scheduler = world.clock
        self._function = function
        self._plugged = False
        self._speed: Speed | None = None
        self._control: ControlPipe | None = None
        self._bulk: dict[int, BulkPipe] = {}
        self._waiters: dict[Transfer, list[tuple[Waiter, Event | None]]] = {}
        self._attaching: list[Waiter] = []

    # -- the cable --------------------------------------------------------------------------------------

    def plug(self) -> None:
        """Plug the device in; it attaches when it is ready to."""
        self.pump.post(self.push)

    def unplug(self) -> None:
        """Pull the cable: every transfer ends as GONE."""
        self.pump.post(self.pull)

    def exchange(self, function: Function) -> None:
        """Put another device in the place of this one, as when a boot loader makes room for firmware.

        What is plugged in leaves the bus, and the other one attaches when it is ready to.
        """
        self.pump.post(partial(self._exchange, function))

    def push(self) -> None:
        """As `plug`, in the world's thread of execution."""
        self._plugged = True
        self._function.connect(self)

    def pull(self) -> None:
        """As `unplug`, in the world's thread of execution."""
        self._plugged = False
        self._function.connect(None)
        self.detached()

    def _exchange(self, function: Function) -> None:
        plugged = self._plugged
        self.pull()
        self._function = function
        if plugged:
            self.push()

    # -- wire.Partner: called by the device -------------------------------------------------------------

    def attached(self, speed: Speed) -> None:
        """The link is up, or up again; every transfer from before has ended."""
        self._forget()
        if self._speed is None:
            self.attachments += 1
        self._speed = speed
        self._control = ControlPipe(self._function, self.pump, self._ended, speed)
        waiters, self._attaching = self._attaching, []
        for waiter in waiters:
            waiter.wake()

    def detached(self) -> None:
        """The link is gone; every transfer ends."""
        self._speed = None
        self._forget()
        self._control = None

    def ready(self, endpoint: int) -> None:
        """Repeat a transaction that the device did not take, if one waits."""
        pipe = self._bulk.get(endpoint) if endpoint else self._control
        if pipe is not None:
            pipe.ready()

    # -- wire.UsbDevice: called by users of the device --------------------------------------------------

    @property
    def speed(self) -> Speed | None:
        """Of the link, None while nothing is attached."""
        return self._speed

    def wait_attached(self, seconds: float) -> bool:
        """Let virtual time pass until the link is up, at most so long; whether it is."""
        if self._speed is None:
            waiter = Waiter(bounded=True)
            self.pump.run(partial(self._expect_attach, waiter, ticks(seconds)), waiter)
        return self._speed is not None

    def control(self, setup: Setup, data: bytes = b"", *, timeout: float | None = None) -> bytes:
        """A whole control transfer. Data of an IN transfer, else empty.

        Raises:
            UsageError: the data is not of the length that the SETUP packet states, or goes along with IN; or
                `timeout` is negative, infinite or not a number.
            Stall: the device stalled it.
            TimeoutError: `timeout` virtual seconds passed; a note says why, if that is known.
            ConnectionError: the device went away.
            DeviceFailed: the device sent more than was asked for.
        """
        transfer = self._control_transfer(setup, data)
        self._run(transfer, timeout, begin=True)
        match transfer.outcome:
            case Outcome.DONE:
                return bytes(transfer.data) if setup.is_in else b""
            case Outcome.STALL:
                raise Stall(f"request {setup.request:#04x}")
            case Outcome.OVERFLOW:
                raise DeviceFailed(
                    f"the device sent more than the {setup.length} bytes asked for",
                    where=f"control request {setup.request:#04x}",
                )
            case _:
                raise ConnectionError("the device went away")

    def submit_control(
        self, setup: Setup, data: bytes = b"", on_done: Callable[[Transfer], None] | None = None
    ) -> Transfer:
        """Begin a control transfer; `wait` and `cancel` take it like one of `submit`.

        Raises:
            UsageError: as `control`.
        """
        transfer = self._control_transfer(setup, data)
        transfer.on_done = on_done
        self.pump.post(partial(self._begin, transfer))
        return transfer

    def submit(
        self,
        endpoint: int,
        data_or_length: bytes | int,
        stream: int = 0,
        on_done: Callable[[Transfer], None] | None = None,
    ) -> Transfer:
        """Begin a bulk transfer: data for an OUT endpoint, a length for an IN endpoint.

        Raises:
            UsageError: it is the other way round, or the endpoint is 0.
        """
        given = isinstance(data_or_length, int)
        if given is not bool(endpoint & 0x80) or not endpoint & 0x0F:
            raise UsageError(f"EP {endpoint:#04x} does not take {'a length' if given else 'data'}")
        if isinstance(data_or_length, int):
            transfer = Transfer(endpoint, data_or_length, bytearray(), stream=stream, on_done=on_done)
        else:
            data = bytearray(data_or_length)
            transfer = Transfer(endpoint, len(data), data, stream=stream, on_done=on_done)
        self.pump.post(partial(self._begin, transfer))
        return transfer

    def wait(self, transfer: Transfer, *, timeout: float | None = None) -> None:
        """Let virtual time pass until the transfer has ended.

        Raises:
            TimeoutError: `timeout` virtual seconds passed; the transfer has been cancelled; a note says why.
            UsageError: `timeout` is negative, infinite or not a number.
        """
        if transfer.outcome is None:
            self._run(transfer, timeout, begin=False)

    def cancel(self, transfer: Transfer) -> None:
        """Cancel a transfer; what has been transferred stays. Harmless if it has ended."""
        if transfer.outcome is None:
            self.pump.post(partial(self._cancel, transfer))

    def reset(self) -> None:
        """A bus reset and the recovery after it; pending transfers end as GONE.

        Raises:
            ConnectionError: nothing is attached.
        """
        if self._speed is None:
            raise ConnectionError("nothing is attached")
        waiter = Waiter(bounded=True)
        self.pump.run(partial(self._reset, waiter), waiter)

    def why(self, endpoint: int | None) -> str:
        """See `wire.UsbDevice`."""
        return "; ".join(self.reasons(None if self._speed is None else endpoint))

    def enumerate(self, address: int = FIRST_ADDRESS, configuration: int | None = None) -> Descriptors:
        """Reset the device and bring it to the configured state: `standard.enumerate_device`."""
        return standard.enumerate_device(self, address, configuration)

    # -- in the pump's thread of execution --------------------------------------------------------------

    def _expect_attach(self, waiter: Waiter, delay: int) -> None:
        if self._speed is not None:
            waiter.wake()
            return
        self._attaching.append(waiter)
        self._scheduler.after(delay, partial(self._give_up, waiter))

    def _give_up(self, waiter: Waiter) -> None:
        if waiter in self._attaching:
            self._attaching.remove(waiter)
            waiter.wake()

    def _reset(self, waiter: Waiter) -> None:
        row = timing.HIGH_SPEED_RESET if self._speed is Speed.HIGH else timing.PORT_RESET
        self._forget()
        if self._speed is not None:
            self._function.bus_reset()
        self._scheduler.after(row.clocks, waiter.wake)

    def _forget(self) -> None:
        """The device is in the default state: no address, no configuration, nothing halted or under way."""
        pipes, self._bulk = self._bulk, {}
        for pipe in pipes.values():
            pipe.abort(Outcome.GONE)
        if self._control is not None:
            self._control.abort(Outcome.GONE)
        self.address = self.configuration = 0

    def _begin(self, transfer: Transfer) -> None:
        transfer.submitted = self._scheduler.now
        if transfer.setup is None:
            self.bulk_transfers += 1
            transfer.spoilt = self.spoilt.pop(self.bulk_transfers, None) or self.luck()
        for observer in self.observers:
            observer.submitted(transfer, self.address)
        pipe = self._pipe(transfer)
        if pipe is None:
            self._ended(transfer, Outcome.GONE)
        else:
            pipe.submit(transfer)

    def _pipe(self, transfer: Transfer) -> ControlPipe | BulkPipe | None:
        """Where a transfer belongs, None if nothing is attached."""
        if transfer.setup is not None or self._speed is None:
            return self._control
        pipe = self._bulk.get(transfer.endpoint)
        if pipe is None:
            pipe = BulkPipe(self._function, self.pump, self._ended, self._speed, transfer.endpoint)
            self._bulk[transfer.endpoint] = pipe
        return pipe

    def _cancel(self, transfer: Transfer) -> None:
        pipe = self._pipe(transfer)
        if pipe is not None:
            pipe.cancel(transfer)

    def _ended(self, transfer: Transfer, outcome: Outcome) -> None:
        """A pipe has ended a transfer."""
        address = self.address
        if outcome is Outcome.DONE and transfer.setup is not None:
            self._follow(transfer.setup)
        transfer.completed = self._scheduler.now
        transfer.outcome = outcome
        if transfer.spoilt is not None and not transfer.spoilt.over:  # it has ended before
            self.spoil(1, transfer.spoilt)
        self.pump.progress += 1
        for waiter, expiry in self._waiters.pop(transfer, ()):
            self._scheduler.cancel(expiry)
            waiter.wake()
        for observer in self.observers:
            observer.ended(transfer, address)
        done, transfer.on_done = transfer.on_done, None  # whose object often holds the transfer: no cycle
        if done is not None:
            done(transfer)

    def _follow(self, setup: Setup) -> None:
        """What a request that the device has accepted means for the host's side."""
        match setup.request_type, setup.request:
            case 0x00, RequestCode.SET_ADDRESS:
                self.address = setup.value & 0x7F
            case 0x00, RequestCode.SET_CONFIGURATION:
                self.configuration = setup.value & 0xFF
                self._clear_halts()
            case 0x01, RequestCode.SET_INTERFACE:
                self._clear_halts()
            case 0x02, RequestCode.CLEAR_FEATURE if setup.value == standard.ENDPOINT_HALT:
                self._clear_halts(setup.index & 0xFF)

    def _clear_halts(self, endpoint: int | None = None) -> None:
        for pipe in self._bulk.values():
            if endpoint is None or pipe.endpoint == endpoint:
                pipe.halted = False

    # -- inside -----------------------------------------------------------------------------------------

    @staticmethod
    def _control_transfer(setup: Setup, data: bytes) -> Transfer:
        if len(data) != (0 if setup.is_in else setup.length):
            raise UsageError(
                f"{len(data)} bytes go with a SETUP packet that states {setup.length}",
                where=f"control request {setup.request:#04x}",
            )
        return Transfer(0, setup.length, bytearray(data), setup=setup)

    def spoil(self, number: int, spoilt: Spoilt) -> None:
        """Plan what befalls a bulk transfer, counted from 1 from now on; a later one, if it is taken."""
        number += self.bulk_transfers
        while number in self.spoilt:
            number += 1
        self.spoilt[number] = spoilt

    def break_off(self, transfer: Transfer) -> None:
        """A bulk transfer ends with an error of the wire, unless it has ended; in the world's thread."""
        pipe = self._pipe(transfer)
        if isinstance(pipe, BulkPipe):
            pipe.break_off(transfer)

    def _run(self, transfer: Transfer, timeout: float | None, *, begin: bool) -> None:
        """Let time pass until a transfer has ended, beginning it if that is still to be done."""
        delay = None if timeout is None else ticks(timeout)
        waiter = Waiter(bounded=delay is not None, shared=True)
        expired = False

        def start() -> None:
            if begin:
                self._begin(transfer)
            if transfer.outcome is not None:
                waiter.wake()
                return
            expiry = None if delay is None else self._scheduler.after(delay, expire)
            self._waiters.setdefault(transfer, []).append((waiter, expiry))

        def expire() -> None:
            nonlocal expired
            expired = True
            self._cancel(transfer)

        try:
            self.pump.run(start, waiter)
        except BaseException:
            self.cancel(transfer)
            raise
        if expired:
            error = TimeoutError(f"the transfer did not end within {timeout:g} s of virtual time")
            if why := self.why(transfer.endpoint):
                error.add_note(why)
            raise error
