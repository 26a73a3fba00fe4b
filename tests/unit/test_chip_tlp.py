"""The TLP engine: what every launch leads to, in registers and in time."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.asm2464pd import timing
from emulator.asm2464pd.undefined import Undefined
from emulator.core.bus import NATIVE
from emulator.pcie.endpoint import MAGIC, NEVER, OFFSETS
from firmware.asm2464pd.describe import Space
from firmware.asm2464pd.registers import link, tlp
from tests.unit.pcie import PREFETCHABLE, WINDOW, Requester

READ = timing.PCIE_READ.clocks
TIMEOUT = timing.PCIE_TIMEOUT.clocks
ERROR, COMPLETE, SENT = (tlp.TLP_STATUS[name] for name in ("ERROR", "COMPLETE", "SENT"))
MRD32, MRD64, MWR32, MWR64, CFGRD0, CFGRD1, CFGWR1 = 0x00, 0x20, 0x40, 0x60, 0x04, 0x05, 0x45
NOWHERE = 0x5_0000_0000


def ready(**arguments) -> Requester:
    requester = Requester(**arguments)
    requester.power_on()
    requester.enumerate()
    return requester


@pytest.fixture(name="requester")
def _requester():
    return ready()


def register(name: str) -> int:
    return WINDOW + OFFSETS[name]


def test_the_launch_byte_is_native_and_the_status_write_one_to_clear(requester):
    assert requester.bus.planes[Space.XDATA].flags[tlp.TLP_LAUNCH.address] == NATIVE
    requester.launch(MWR64, PREFETCHABLE)
    requester.write(tlp.TLP_STATUS, ERROR | COMPLETE)
    assert requester.value(tlp.TLP_STATUS) == SENT
    assert requester.bus.cpu_read(Space.XDATA, tlp.TLP_LAUNCH.address) == 0


def test_enumeration_as_the_host_does_it(requester):
    assert requester.config_read(0, 0x00) == 0x24631B21
    assert requester.config_read(4, 0x00) == 0x70E11234
    assert requester.completion() == (0, 4)
    sizes = {}
    for place in (0x10, 0x14, 0x18):
        requester.config_write(4, place, 0xFFFFFFFF)
        sizes[place] = requester.config_read(4, place)
    assert sizes == {0x10: 0xFFF0000C, 0x14: 0xFFFFFFFF, 0x18: 0xFFFFF000}
    assert requester.config_read(4, 0x100) & 0xFFFF == 0x0015


def test_a_completed_read_fills_every_register(requester):
    requester.write(tlp.TLP_TAG, 0x20)
    requester.write(tlp.TLP_REQUESTER, 0x0108)
    requester.endpoint.memory[0x50:0x54] = b"\x01\x02\x03\x04"
    requester.launch(MRD64, PREFETCHABLE + 0x50, 0xDEADBEEF, enables=0b0110)
    assert requester.value(tlp.TLP_STATUS) == SENT
    requester.run(READ - 1)
    assert requester.value(tlp.TLP_STATUS) == SENT
    assert requester.value(tlp.TLP_DATA) == 0xDEADBEEF
    requester.run(1)
    assert requester.value(tlp.TLP_STATUS) == SENT | COMPLETE
    assert requester.value(tlp.TLP_DATA) == 0x00030200
    assert requester.value(tlp.TLP_COMPLETION) == 0x4A000001
    assert requester.value(tlp.TLP_COMPLETER) == 0x0400
    assert requester.completion() == (0, 2)
    assert requester.value(tlp.TLP_COMPLETION_TAIL) == 0x0108_20_51
    assert requester.value(tlp.TLP_COMPLETION_KIND) == 1


def test_a_configuration_write_is_completed_without_data(requester):
    requester.config_read(4, 0x00)
    requester.write(tlp.TLP_DATA, 0)
    requester.config_write(4, 0x0C, 0x11, enables=0x1)
    assert requester.value(tlp.TLP_COMPLETION_KIND) == 0
    assert requester.value(tlp.TLP_COMPLETION) == 0x0A000000
    assert requester.value(tlp.TLP_DATA) == 0x11
    assert requester.completion() == (0, 4)
    assert requester.config_read(4, 0x0C) & 0xFF == 0x11


def test_address_registers_stay_as_written(requester):
    requester.launch(MRD64, PREFETCHABLE + 0x123, enables=0x8)
    requester.run(READ)
    assert requester.value(tlp.TLP_ADDRESS) == 0x123
    assert requester.value(tlp.TLP_ADDRESS_HIGH) == PREFETCHABLE >> 32
    assert requester.completion() == (0, 1)
    assert requester.value(tlp.TLP_COMPLETION_TAIL) & 0x7F == 0x23


def test_a_32_bit_request_ignores_the_high_address(requester):
    requester.write(tlp.TLP_ADDRESS_HIGH, 0x55555555)
    requester.write(tlp.TLP_FMT_TYPE, MRD32)
    requester.write(tlp.TLP_BYTE_ENABLES, 0xF)
    requester.write(tlp.TLP_ADDRESS, WINDOW)
    requester.write(tlp.TLP_LAUNCH, 0x0F)
    requester.run(READ)
    assert requester.value(tlp.TLP_DATA) == MAGIC


def test_posted_writes_go_back_to_back(requester):
    before = requester.engine.served
    for number in range(100):
        requester.launch(MWR64, PREFETCHABLE + 4 * number, number)
    assert requester.engine.served == before + 100
    assert requester.endpoint.memory[:400] == b"".join(n.to_bytes(4, "little") for n in range(100))
    requester.launch(MWR32, register("SCRATCH"), 0x12345678)
    assert requester.engine.served == before + 100
    assert requester.request(MRD32, register("SCRATCH")) == 0x12345678
    assert requester.engine.due is None


@pytest.mark.parametrize(
    ("fmt_type", "address", "status"),
    [
        (MRD64, NOWHERE, 1),
        (MRD32, WINDOW + 0x800, 1),
        (CFGRD1, 7 << 24, 1),
        (CFGWR1, 7 << 24, 1),
        (CFGRD0, 1 << 19, 1),
        (MRD32, WINDOW + OFFSETS["ABORTED"], 4),
    ],
)
def test_unsuccessful_completions(requester, fmt_type, address, status):
    requester.launch(fmt_type, address, 0x5A5A5A5A)
    requester.run(READ)
    assert requester.value(tlp.TLP_STATUS) == SENT | COMPLETE
    assert requester.completion() == (status, 4)
    assert requester.value(tlp.TLP_COMPLETION_KIND) == 0
    assert requester.value(tlp.TLP_DATA) == 0x5A5A5A5A


def test_configuration_retry(requester):
    requester.launch(MWR32, register("RETRY"), 10 * READ)
    requester.launch(CFGRD1, 4 << 24)
    requester.run(READ)
    assert requester.completion()[0] == 2
    requester.run(10 * READ)
    assert requester.config_read(4, 0x00) == 0x70E11234


def test_a_lost_posted_write_changes_nothing(requester):
    requester.launch(MWR64, NOWHERE, 1)
    requester.run(TIMEOUT)
    assert requester.value(tlp.TLP_STATUS) == SENT


def test_no_completion_is_an_error_after_the_time_out(requester):
    requester.launch(MWR32, register("DELAY"), NEVER)
    requester.launch(MRD32, register("DELAYED"))
    requester.run(TIMEOUT - 1)
    assert requester.value(tlp.TLP_STATUS) == SENT
    requester.run(1)
    assert requester.value(tlp.TLP_STATUS) == SENT | ERROR


def test_a_slow_completer_is_waited_for(requester):
    requester.launch(MWR32, register("DELAY"), 5000)
    requester.launch(MRD32, register("DELAYED"))
    requester.run(READ + 4999)
    assert requester.value(tlp.TLP_STATUS) == SENT
    requester.run(1)
    assert requester.value(tlp.TLP_STATUS) == SENT | COMPLETE
    assert requester.value(tlp.TLP_DATA) == MAGIC


def test_a_launch_gives_up_the_outstanding_request(requester):
    requester.endpoint.memory[:8] = b"\x01\0\0\0\x02\0\0\0"
    requester.launch(MRD64, PREFETCHABLE)
    requester.run(READ // 2)
    requester.launch(MRD64, PREFETCHABLE + 4)
    requester.run(READ - 1)
    assert requester.value(tlp.TLP_STATUS) == SENT
    requester.run(1)
    assert requester.value(tlp.TLP_DATA) == 2
    requester.launch(MRD64, PREFETCHABLE)
    requester.launch(MWR64, PREFETCHABLE + 8, 3)
    assert requester.finish() == SENT
    assert requester.value(tlp.TLP_DATA) == 3


def test_a_dead_address_never_ends(requester):
    requester.engine.dead(range(PREFETCHABLE + 0x100, PREFETCHABLE + 0x104))
    requester.launch(MRD64, PREFETCHABLE + 0x100)
    assert requester.finish() == SENT
    assert requester.engine.due is None
    assert requester.request(MRD64, PREFETCHABLE + 0x104) == 0


@pytest.mark.parametrize("stale", [False, True])
def test_late_completions(requester, stale):
    requester.endpoint.memory[:4] = b"late"
    late = int.from_bytes(b"late", "little")
    requester.engine.late(range(PREFETCHABLE, PREFETCHABLE + 4), 1000, stale=stale)
    requester.launch(MRD64, PREFETCHABLE)
    requester.run(READ + 999)
    assert requester.value(tlp.TLP_STATUS) == SENT
    requester.run(1)
    assert requester.value(tlp.TLP_STATUS) == SENT | COMPLETE
    assert requester.value(tlp.TLP_DATA) == late
    assert requester.engine.due is None

    requester.launch(MRD64, PREFETCHABLE)
    requester.run(READ)
    requester.request(MRD64, PREFETCHABLE + 8)
    requester.write(tlp.TLP_STATUS, 7)
    requester.run(1000)
    assert requester.value(tlp.TLP_STATUS) == (COMPLETE if stale else 0)
    assert requester.value(tlp.TLP_DATA) == (late if stale else 0)


@pytest.mark.parametrize("stale", [False, True])
def test_a_completion_after_the_time_out(requester, stale):
    requester.engine.late(range(PREFETCHABLE, PREFETCHABLE + 4), TIMEOUT, stale=stale)
    requester.launch(MRD64, PREFETCHABLE)
    requester.run(TIMEOUT)
    assert requester.value(tlp.TLP_STATUS) == SENT | ERROR
    requester.run(READ)
    assert requester.value(tlp.TLP_STATUS) == SENT | ERROR | (COMPLETE if stale else 0)


def test_before_power_on_reads_fail_at_once_even_under_strict():
    requester = Requester(strict=True)
    requester.write(tlp.TLP_LENGTH, 1)
    requester.launch(CFGRD0, 0)
    assert requester.value(tlp.TLP_STATUS) == SENT | ERROR


def test_without_a_link_reads_fail_at_once_and_writes_vanish(requester):
    requester.write(link.PCIE_PERST, 1)
    requester.launch(MRD64, PREFETCHABLE)
    assert requester.value(tlp.TLP_STATUS) == SENT | ERROR
    requester.launch(CFGRD0, 0)
    assert requester.value(tlp.TLP_STATUS) == SENT | ERROR
    requester.launch(MWR64, PREFETCHABLE, 7)
    assert requester.finish() == SENT
    assert requester.endpoint.memory[0] == 0


def test_a_link_that_goes_down_ends_the_outstanding_request(requester):
    requester.clock.after(10, lambda: requester.link.drop(None))
    requester.launch(MRD64, PREFETCHABLE)
    requester.run(9)
    assert requester.value(tlp.TLP_STATUS) == SENT
    requester.run(1)
    assert requester.value(tlp.TLP_STATUS) == SENT | ERROR
    assert requester.engine.due is None


def test_routing_must_be_on(requester, caplog):
    requester.write(link.PCIE_ROUTING, 0x41)
    with caplog.at_level(logging.WARNING):
        requester.launch(CFGRD1, 4 << 24)
        requester.launch(CFGRD1, 4 << 24)
    assert requester.value(tlp.TLP_STATUS) == SENT | ERROR
    assert [record.message.count("routing") for record in caplog.records] == [1]
    requester.write(link.PCIE_ROUTING, 0x80)
    assert requester.config_read(4, 0x00) == 0x70E11234


@pytest.mark.parametrize(
    ("fmt_type", "length", "enables", "word"),
    [
        (0x42, 1, 0x0F, "0x42"),
        (0x74, 1, 0x0F, "0x74"),
        (MRD64, 0, 0x0F, "one dword"),
        (MRD64, 2, 0xFF, "one dword"),
        (MWR64, 1, 0xFF, "one dword"),
    ],
)
def test_malformed_requests_are_reported_and_not_sent(caplog, fmt_type, length, enables, word):
    requester = ready()
    requester.write(tlp.TLP_LENGTH, length)
    with caplog.at_level(logging.WARNING):
        requester.launch(fmt_type, PREFETCHABLE, 7, enables)
    assert word in caplog.text
    assert requester.endpoint.memory[0] == 0
    assert requester.value(tlp.TLP_STATUS) == SENT | (0 if fmt_type in (MWR64, 0x74) else ERROR)
    strict = ready(strict=True)
    strict.write(tlp.TLP_LENGTH, length)
    with pytest.raises(Undefined, match=word):
        strict.launch(fmt_type, PREFETCHABLE, 7, enables)


def test_doorbell_launches_are_named(caplog):
    requester = ready()
    requester.write(tlp.TLP_DOORBELL, 1)
    with caplog.at_level(logging.WARNING):
        requester.write(tlp.TLP_LAUNCH, 0x03)
    assert "NVME_SQ1_DOORBELL" in caplog.text


def test_a_strict_chip_reports_nothing_for_correct_firmware():
    requester = ready(strict=True)
    assert requester.request(MRD32, WINDOW) == MAGIC


def test_reads_of_moved_memory_follow_it(requester):
    requester.endpoint.memory[:4] = b"\x01\0\0\0"
    served = requester.engine.served
    requester.config_write(4, 0x14, 9)
    assert requester.request(MRD64, 0x9_0000_0000) == 1
    assert requester.engine.served == served + 1
    requester.launch(MRD64, PREFETCHABLE)
    requester.run(READ)
    assert requester.completion()[0] == 1
    requester.config_write(2, 0x04, 0x4)
    requester.launch(MRD64, 0x9_0000_0000)
    requester.run(READ)
    assert requester.completion()[0] == 1


class Listener:
    def __init__(self):
        self.heard = {}

    def accessed(self, kind, space, address, value):
        pass

    def line(self, number, level):
        pass

    def changed(self, space, address, data):
        self.heard[address] = data


def test_observers_get_completions(requester):
    listener = Listener()
    requester.bus.observers.append(listener)
    requester.engine.notify = True
    requester.endpoint.memory[:4] = b"\x01\x02\x03\x04"
    requester.launch(MRD64, PREFETCHABLE)
    assert listener.heard[tlp.TLP_STATUS.address] == b"\x04"
    requester.run(READ)
    assert listener.heard[tlp.TLP_STATUS.address] == b"\x06"
    assert listener.heard[tlp.TLP_DATA.address] == b"\x04\x03\x02\x01"


ACCESS = st.tuples(
    st.sampled_from((MRD64, MWR64)),
    st.integers(0, 63),
    st.integers(0, 0xFFFFFFFF),
    st.integers(0, 15),
    st.integers(0, 2 * READ),
)


@settings(max_examples=40, deadline=None)
@given(st.lists(ACCESS, max_size=8))
def test_memory_behaves_alike_on_both_paths(accesses):
    for requester in PAIR:
        requester.write(tlp.TLP_STATUS, 7)
        requester.write(tlp.TLP_DATA, 0)
        requester.endpoint.memory[:64] = bytes(64)
    for fmt_type, offset, value, enables, pause in accesses:
        for requester in PAIR:
            requester.launch(fmt_type, PREFETCHABLE + offset, value, enables)
            requester.run(pause)
    native, routed = PAIR
    assert native.endpoint.memory[:64] == routed.endpoint.memory[:64]
    for requester in PAIR:
        requester.run(2 * READ)
    assert native.storage(Space.XDATA, 0xB200, 256) == routed.storage(Space.XDATA, 0xB200, 256)
    assert routed.engine.served == 0


def _pair() -> tuple[Requester, Requester]:
    native, routed = ready(), ready()
    # An injected fault anywhere in a BAR takes all of it off the native path.
    routed.engine.dead(range(PREFETCHABLE + 0x1000, PREFETCHABLE + 0x1001))
    return native, routed


PAIR = _pair()
