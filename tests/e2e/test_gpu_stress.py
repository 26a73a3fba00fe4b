"""`towline gpu stress` on good and bad emulated cables, ports, supplies and cards: the verdict on each."""

from __future__ import annotations

import json

import pytest

import towline
from emulator.board import Board
from emulator.faults import parse as fault
from emulator.options import Options
from sdk import errors
from towline.cli import gpu_stress, main
from usbgpu import bridge as bridges
from usbgpu import stress
from usbgpu import transport as transports
from usbgpu.transport import device_string, sysfs


@pytest.fixture(autouse=True)
def no_defaults(monkeypatch, quiet_card):
    monkeypatch.delenv("TOWLINE_DEVICE", raising=False)
    monkeypatch.delenv("TOWLINE_FIRMWARE", raising=False)


def call(capsys, device, *argv):
    """(exit code, result) of the command on a device."""
    code = main(["gpu", "stress", "--device", device, *map(str, argv), "--json"])
    return code, json.loads(capsys.readouterr().out)["result"]


def stressed(seconds, *injected, memory=stress.BridgeMemory, **plan):
    """The report on a bridge's memory, without a card."""
    board = Board.of("firmware", Options(faults=tuple(map(fault, injected))))
    with transports.attach(board.backend()) as transport:
        memory = memory(bridges.attach(transport))
        report = stress.run(memory, stress.Plan(seconds, **plan))
    board.close()
    return report


def test_a_good_cable_has_no_errors_and_the_links_rate():
    report = stressed(0.03)
    assert report.verdict is stress.Verdict.GOOD
    assert not report.record.incidents
    assert report.rounds > 4
    assert report.record.sent == report.rounds << 19
    assert report.record.sent / report.record.out_seconds > 600e6
    assert len(report.evidence) == 1, "what the supply gave"


def test_a_bad_cable_is_to_blame_for_each_transfer_that_breaks_off_and_the_test_goes_on():
    report = stressed(0.1, "bad-cable=4e-2")
    kinds = {kind for kind, _ in report.record.kinds}
    assert (report.verdict, kinds) == (stress.Verdict.CABLE, {"wire-failed"})
    assert len(report.record.recoveries) == len(report.record.incidents) > 1
    assert report.rounds > len(report.record.incidents)
    assert report.errors_per_hour == pytest.approx(3600 * len(report.record.incidents) / report.seconds)


@pytest.mark.slow
def test_the_same_bad_cable_fails_at_the_same_transfers():
    first, second = (stressed(0.05, "bad-cable=4e-2").record for _ in range(2))
    assert [each.at for each in first.incidents] == [each.at for each in second.incidents]


def test_a_bit_that_no_checksum_protects_is_reported_with_its_place():
    report = stressed(0.012, "bit-flip@3", names=("zeros",))  # what the first read of the window brings
    (wrong,) = report.record.wrong
    assert (wrong.address, wrong.count, wrong.expected, wrong.bits) == (0xF200, 1, 0, 0x08)
    assert (wrong.where, report.verdict) == ("in", stress.Verdict.CABLE)


def test_a_list_that_was_damaged_and_sent_again_counts():
    report = stressed(0.012, "bit-flip@4")
    assert report.record.kinds == {("bad-checksum", "bulk OUT"): 1}
    assert report.verdict is stress.Verdict.CABLE


def test_a_bit_that_stays_wrong_is_the_memorys():
    class Stuck(stress.BridgeMemory):
        def read(self, number):
            data = super().read(number)
            return data[:9] + bytes((data[9] | 0x40,)) + data[10:]

    report = stressed(0.012, memory=Stuck, names=("zeros",))
    assert {(each.address, each.bits, each.where) for each in report.record.wrong} == {
        (0xF009, 0x4000, "memory")
    }
    assert report.verdict is stress.Verdict.BRIDGE


def test_ctrl_c_ends_the_test_with_what_it_found():
    class Interrupted(stress.BridgeMemory):
        def read(self, number):
            if number == 2:
                raise KeyboardInterrupt
            return super().read(number)

    report = stressed(10.0, memory=Interrupted)
    assert (report.interrupted, report.rounds, report.verdict) == (True, 2, stress.Verdict.GOOD)


def test_ctrl_c_before_anything_was_tested_is_no_verdict():
    class Interrupted(stress.BridgeMemory):
        def read(self, number):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stressed(10.0, memory=Interrupted)


@pytest.mark.slow
def test_a_bit_that_was_damaged_on_the_way_to_the_card():
    with towline.open_gpu("emulated") as gpu:
        memory = stress.CardMemory(gpu, None)
        assert gpu.emulation is not None
        gpu.emulation.inject("bit-flip@2")  # the sectors of the first upload
        report = stress.run(memory, stress.Plan(0.01, names=("zeros",)))
    (wrong,) = report.record.wrong
    assert (wrong.where, wrong.count, wrong.bits.bit_count()) == ("out", 1, 1)
    assert report.verdict is stress.Verdict.CABLE


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "verdict"),
    [
        ("link-drop@240ms+20ms", stress.Verdict.PORT),
        ("unplug@240ms+100ms", stress.Verdict.PORT),
        ("supply-sag@240ms+100ms", stress.Verdict.SUPPLY),
        ("bulk-stall@9", stress.Verdict.BRIDGE),
    ],
)
def test_without_a_card_ports_and_supplies_are_told_apart(fault, verdict):
    report = stressed(0.05, fault)
    assert report.verdict is verdict
    assert len(report.record.incidents) == 1
    assert report.gone is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "weak"),
    [
        ("supply-sag@240ms+100ms=10.5v", True),
        ("supply-fault@240ms+100ms", True),
        ("supply-sag@240ms+9ms=11.9v", False),
    ],
)
def test_a_weak_supply_is_measured(fault, weak):
    """Nothing fails, but the dock's sensor shows it."""
    report = stressed(0.08, fault)
    assert report.verdict is (stress.Verdict.SUPPLY if weak else stress.Verdict.GOOD)
    assert report.record.incidents == []
    assert any("the supply gave" in sentence for sentence in report.evidence)


def test_a_dock_without_a_sensor_is_tested_without_it():
    report = stressed(0.02, "no-sensor")
    assert (report.verdict, report.record.lowest) == (stress.Verdict.GOOD, None)


@pytest.mark.slow
def test_a_device_that_does_not_come_back_ends_the_test():
    report = stressed(100.0, "unplug@240ms")
    assert report.verdict is stress.Verdict.PORT
    assert report.gone is not None
    assert report.seconds < 100.0
    assert report.speed is None


def test_a_cable_without_wires_for_usb_3(capsys):
    code, result = call(capsys, "emulated?speed=high", "--no-card", "--for", "50ms")
    assert (code, result["verdict"], result["errors"]) == (1, "cable", 0)


@pytest.mark.slow
def test_the_command_on_a_card_gives_what_scripts_read(capsys):
    code, result = call(capsys, "emulated", "--for", "20ms", "--pattern", "random,walking")
    assert code == 0
    assert {"transfers", "bytes", "errors", "errors_per_hour", "mb_per_s", "verdict"} <= result.keys()
    assert (result["chip"], result["verdict"], result["errors"]) == ("gfx1100", "good", 0)
    assert result["bytes"] == 2 * result["rounds"] << 20
    assert result["kernels"] == result["rounds"] > 2
    assert min(result["mb_per_s"].values()) > 400
    assert result["patterns"] == ["random", "walking"]
    assert result["link_errors"] is None, "an emulated device has no host controller of this machine"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "verdict"),
    [
        ("bad-cable=2e-2", "cable"),
        ("link-drop@330ms+20ms", "port"),
        ("supply-sag@330ms+200ms", "supply"),
        ("pcie-drop@330ms+50ms", "supply"),
        ("card-reset@330ms", "card"),
        ("kernel-hang@4", "card"),
    ],
)
def test_with_a_card(fault, verdict, capsys):
    code, result = call(capsys, f"emulated?inject={fault}", "--for", "50ms")
    assert (code, result["verdict"]) == (1, verdict)
    assert result["errors"] >= len(result["recoveries"]) >= 1
    assert result["gone"] is None
    assert result["rounds"] > 3


@pytest.mark.slow
def test_wrong_numbers_of_a_kernel_are_the_cards(capsys, monkeypatch):
    from usbgpu.stress import memories

    monkeypatch.setattr(memories, "STEPS", memories.STEPS + 1)  # of the numbers that it is compared with
    code, result = call(capsys, "emulated", "--for", "10ms")
    assert (code, result["verdict"]) == (1, "card")
    assert {each["kind"] for each in result["kinds"]} == {"wrong-result"}


def test_link_errors_of_the_host_controller_make_a_link_unstable(monkeypatch):
    counts = iter((10, 70))
    monkeypatch.setattr(sysfs, "link_errors", lambda place: next(counts))
    board = Board.of("firmware", Options())
    with transports.attach(board.backend()) as transport:
        memory = stress.BridgeMemory(bridges.attach(transport))
        with monkeypatch.context() as patch:
            patch.setattr(type(transport), "is_emulated", False)
            report = stress.run(memory, stress.Plan(0.01))
    assert report.verdict is stress.Verdict.UNSTABLE_LINK
    assert (report.link_errors.before, report.link_errors.after) == (10, 70)


@pytest.mark.parametrize(
    "argv", [["--for", "soon"], ["--for", "0"], ["--pattern", "stripes"], ["--seed", "-1"]]
)
def test_wrong_options(argv, capsys):
    assert main(["gpu", "stress", *argv]) == 2


@pytest.mark.slow
def test_what_fails_while_the_card_is_opened_counts(capsys):
    code, result = call(capsys, "emulated?inject=bulk-error@9", "--for", "10ms")
    assert (code, result["chip"], result["verdict"], result["errors"]) == (1, "gfx1100", "cable", 1)
    assert result["recoveries"] == []


@pytest.mark.slow
def test_without_a_compiler_no_kernels_run_and_the_user_is_told(capsys, monkeypatch):
    def missing(source, chip):
        raise errors.ToolMissing("no clang")

    monkeypatch.setattr("towline.gpu.compile_kernels", missing)
    code, result = call(capsys, "emulated", "--for", "10ms")
    assert (code, result["kernels"], result["verdict"]) == (0, 0, "good")


def test_a_card_that_does_not_open_is_reported_and_the_bridge_is_stressed(capsys, monkeypatch):
    board = Board.of("firmware", Options(faults=(fault("perst-stuck"),)))
    monkeypatch.setattr(device_string, "backend", lambda named: board.backend())
    monkeypatch.setattr(gpu_stress, "OPENINGS", 1)
    code, result = call(capsys, "emulated", "--for", "10ms")
    assert (code, result["chip"], result["verdict"]) == (1, None, "card")
    assert result["errors"] == 0
    assert "does not open" in result["evidence"][-1]
