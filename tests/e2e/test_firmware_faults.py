"""The firmware when PCIe, the cable or the host fails: it answers again within bounded virtual time."""

from __future__ import annotations

import struct

import pytest

from emulator.core.clock import clocks
from emulator.usb.wire import Outcome, Setup, Speed
from firmware.asm2464pd.registers.usb import USB_ADDRESS
from tests.reference_host import CFGRD0, IN, MRD32, MRD64, MWR64, OUT, RAM, REGISTERS, Host, power_up

DEAD, LATE, STALE = RAM + 0x10_0000, RAM + 0x20_0000, RAM + 0x30_0000
PATIENCE = 0.3
"""Virtual seconds within which everything but power must be answered: 500000 polls and a margin."""


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(Speed.SUPER_PLUS, id="superspeed"),
        pytest.param(Speed.HIGH, id="highspeed", marks=pytest.mark.slow),
    ],
)
def host(request) -> Host:
    made = power_up(request.param)
    made.set_up_pcie()
    made.board.chip.tlp.dead(range(DEAD, DEAD + 0x1000))
    made.board.chip.tlp.late(range(LATE, LATE + 0x1000), clocks(9e-3), stale=False)
    made.board.chip.tlp.late(range(STALE, STALE + 0x1000), clocks(90e-3), stale=True)
    return made


def works(host: Host) -> bool:
    """Whether everything works for a host that starts again."""
    usb = host.board.usb
    usb.control(Setup(0x00, 9, 1, 0, 0), timeout=PATIENCE)
    host.write32(RAM + 0x80, 0x600D600D)
    assert host.read32(RAM + 0x80) == 0x600D600D
    data = struct.pack("<300I", *range(300))
    host.stream_write(RAM, data)
    assert host.stream_read(RAM, len(data)) == data
    host.arm_slots(2, 1, 1)
    host.bulk(OUT, data[:1024])
    assert host.board.machine.bus.sram[0x4000:0x4400] == data[:1024]
    return True


# -- completions ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_request_that_never_ends(host):
    begin = host.now
    host.tlp(MRD64, DEAD)
    assert host.result(timeout=1)[3] == 0xFF
    assert host.now - begin < PATIENCE
    assert host.read32(RAM + 4) == host.read32(RAM + 4)
    assert works(host)


def test_ep0_is_served_while_main_waits_for_a_completion(host):
    usb = host.board.usb
    host.tlp(MRD64, DEAD)
    waiting = usb.submit_control(Setup(0xC0, 0xF0, 0, 0, 8))
    host.sleep(5e-3)
    assert waiting.outcome is None
    usb.cancel(waiting)
    begin = host.now
    assert host.peek(0xB450) == b"\x78"
    assert usb.control(Setup(0x80, 8, 0, 0, 1), timeout=1) == b"\1"
    assert host.now - begin < 2e-3, "at once"
    host.tlp(MRD64, RAM)  # the next request replaces it
    assert host.result()[1::2] == (0, 0)
    assert host.now - begin < 5e-3
    assert works(host)


def test_a_late_completion(host):
    host.board.endpoint.memory[LATE - RAM : LATE - RAM + 8] = b"latebird"
    begin = host.now
    assert host.read32(LATE) == struct.unpack("<I", b"late")[0]
    assert 9e-3 < host.now - begin < 12e-3
    assert host.stream_read(LATE, 8) == b"latebird"


def test_a_stale_completion_is_not_taken_for_another(host):
    memory = host.board.endpoint.memory
    memory[STALE - RAM : STALE - RAM + 4] = b"OLD!"
    memory[LATE - RAM : LATE - RAM + 4] = b"new!"
    begin = host.now
    host.tlp(MRD64, STALE)
    assert host.result()[3] == 1, "the hardware gives it up"
    assert 0.045 < host.now - begin < 0.06
    host.sleep(begin + 0.085 - host.now)
    host.tlp(MRD64, LATE)  # in flight when the completion of the other one comes
    data, completion, _, status = host.result()
    assert host.now - begin > 0.092
    assert (struct.pack("<I", data), completion, status) == (b"new!", 0, 0)
    assert works(host)


def test_a_stale_completion_in_a_stream(host):
    memory = host.board.endpoint.memory
    memory[STALE - RAM : STALE - RAM + 4] = b"OLD!"
    memory[LATE - RAM : LATE - RAM + 16] = b"sixteen of them!"
    begin = host.now
    host.tlp(MRD64, STALE)
    assert host.result()[3] == 1
    host.sleep(begin + 0.08 - host.now)
    assert host.stream_read(LATE, 16) == b"sixteen of them!"
    assert host.now - begin > 0.11


@pytest.mark.slow
def test_a_stream_that_meets_a_dead_address_ends_short(host):
    memory = host.board.endpoint.memory
    memory[DEAD - RAM - 16 : DEAD - RAM] = b"before the abyss"
    host.tlp(MRD64, DEAD - 16, 300, mode=2)
    transfer = host.begin(IN, 1200)
    begin = host.now
    host.board.usb.wait(transfer, timeout=1)
    assert transfer.data == b"before the abyss"
    assert host.now - begin < PATIENCE
    host.tlp(MRD64, DEAD, 1, mode=2)
    assert host.bulk(IN, 4) == b"", "an empty packet"
    assert works(host)


def test_a_refused_read_ends_a_stream_short(host):
    host.tlp(MRD32, REGISTERS, 300, mode=2)
    found = host.bulk(IN, 1200)
    assert found[:4] == b"TOWL"
    assert 0 < len(found) < 0x100, "up to the first register that aborts or does not exist"
    assert works(host)


# -- the PCIe link --------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [1, 2])
def test_the_pcie_link_is_lost_in_a_stream(host, mode):
    board = host.board
    kind = MWR64 if mode == 1 else MRD64
    host.tlp(kind, RAM, 2048, mode=mode)
    transfer = host.begin(OUT, bytes(8192)) if mode == 1 else host.begin(IN, 8192)
    host.sleep(1e-4)
    board.machine.clock.after(1, lambda: board.chip.link.drop(None))
    try:
        board.usb.wait(transfer, timeout=PATIENCE)
    except TimeoutError:
        pytest.fail("the stream hangs")
    assert not host.link_up
    host.tlp(CFGRD0, 0)
    assert host.result()[3] == 1, "an error, at once"
    host.power(on=True)
    host.set_up_pcie()
    assert works(host)


def test_a_link_that_does_not_come_up(host):
    board = host.board
    board.chip.link.perst_stuck = True
    begin = host.now
    host.power(on=True)
    assert 1.9 < host.now - begin < 2.5
    assert not host.link_up
    board.chip.link.perst_stuck = False
    host.power(on=True)
    host.set_up_pcie()
    assert works(host)


def test_ep0_is_served_while_the_link_trains(host):
    usb = host.board.usb
    host.power(on=False)
    waiting = usb.submit_control(Setup(0x40, 0xF3, 1, 0, 0))
    host.sleep(20e-3)
    assert waiting.outcome is None
    usb.cancel(waiting)
    begin = host.now
    assert not host.link_up
    assert host.now - begin < 2e-3
    host.sleep(0.3)
    assert host.link_up, "the power is switched on in any case"
    host.set_up_pcie()
    assert works(host)


# -- the host and the cable -----------------------------------------------------------------------------


def _nothing(host: Host) -> None:
    pass


def _setup_alone(host: Host) -> None:
    host.board.usb.cancel(host.board.usb.submit_control(Setup(0x40, 0xF0, 0x0F60, 0, 12), bytes(12)))


def _stream_write(host: Host) -> None:
    host.tlp(MWR64, RAM, 4096, mode=1)
    host.begin(OUT, bytes(16384))
    host.sleep(3e-4)


def _stream_read(host: Host) -> None:
    host.tlp(MRD64, RAM, 4096, mode=2)
    host.begin(IN, 16384)
    host.sleep(6e-4)


def _stream_unread(host: Host) -> None:
    host.tlp(MRD64, RAM, 4096, mode=2)
    host.sleep(1e-3)


def _dead(host: Host) -> None:
    host.tlp(MRD64, DEAD)
    host.board.usb.submit_control(Setup(0xC0, 0xF0, 0, 0, 8))
    host.sleep(1e-3)


def _dead_stream(host: Host) -> None:
    host.tlp(MRD64, DEAD, 100, mode=2)
    host.sleep(1e-3)


def _slots_out(host: Host) -> None:
    host.arm_slots(64, 0, 2)
    host.begin(OUT, bytes(2048))
    host.sleep(1e-3)


def _slots_in(host: Host) -> None:
    host.arm_slots(64, 0, 2, to_host=True)
    host.begin(IN, 2048)


def _list(host: Host) -> None:
    host.control_out(0xF8, 1, 0)
    host.begin(OUT, b"TL" + bytes(500))
    host.sleep(1e-3)


def _halted(host: Host) -> None:
    host.board.usb.control(Setup(0x02, 3, 0, OUT, 0))
    host.board.usb.control(Setup(0x02, 3, 0, IN, 0))


PHASES = (
    _nothing, _setup_alone, _stream_write, _stream_read, _stream_unread, _dead, _dead_stream, _slots_out,
    _slots_in, _list, _halted,
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("phase", PHASES, ids=lambda phase: phase.__name__.strip("_"))
def test_a_bus_reset_in_any_phase(host, phase):
    phase(host)
    begin = host.now
    host.board.usb.enumerate()
    assert host.now - begin < 0.5
    assert works(host)


@pytest.mark.slow
@pytest.mark.parametrize("phase", PHASES, ids=lambda phase: phase.__name__.strip("_"))
def test_a_link_drop_in_any_phase(host, phase):
    phase(host)
    begin = host.now
    board = host.board
    board.machine.bus.clock.after(1, lambda: board.chip.usb.drop_link(clocks(2e-3)))
    host.sleep(1e-3)
    assert board.usb.wait_attached(1)
    board.usb.enumerate()
    assert host.now - begin < 1
    assert works(host)


@pytest.mark.slow
@pytest.mark.parametrize(
    "phase",
    [one for one in PHASES if "slots" not in one.__name__],
    ids=lambda phase: phase.__name__.strip("_"),
)
def test_a_host_program_that_died_and_one_that_starts_again(host, phase):
    """No reset: the new program cancels pending transfers, and configures the device again."""
    phase(host)
    usb = host.board.usb
    for endpoint in (0, OUT, IN):
        pipe = usb._control if endpoint == 0 else usb._bulk.get(endpoint)
        for transfer in list(pipe._queue) if pipe is not None else ():
            usb.cancel(transfer)
    assert works(host)


@pytest.mark.slow
def test_a_bus_reset_while_an_address_is_set(host):
    """At any point of SET_ADDRESS: the device is at address 0 afterwards, where the host looks for it."""
    usb, board = host.board.usb, host.board
    held = []

    def address() -> int:
        return board.machine.bus.value(USB_ADDRESS) & USB_ADDRESS["ADDRESS"]

    def reset() -> None:
        held.append(address())
        usb.cancel(transfer)
        board.chip.usb.bus_reset()

    for delay in range(1, clocks(400e-6), 60):
        transfer = usb.submit_control(Setup(0x00, 5, 42, 0, 0))
        board.machine.clock.after(delay, reset)
        host.sleep(500e-6)
        assert address() == 0, f"reset after {delay} clocks"
    assert {0, 42} <= set(held), "resets came before it was set, and after"
    usb.enumerate()
    assert works(host)


def test_a_bus_reset_while_the_link_trains(host):
    usb = host.board.usb
    host.power(on=False)
    transfer = usb.submit_control(Setup(0x40, 0xF3, 1, 0, 0))
    host.sleep(5e-3)
    usb.reset()
    assert transfer.outcome is Outcome.GONE
    usb.enumerate()
    host.power(on=True)
    host.set_up_pcie()
    assert works(host)
