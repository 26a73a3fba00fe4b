"""Faults as a user writes them."""

from __future__ import annotations

import pytest

from emulator import faults
from emulator.core.clock import clocks
from emulator.faults import Fault
from emulator.options import described
from sdk.errors import UsageError
from towline.cli import emulate


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("link-drop@5ms", Fault("link-drop", at=clocks(5e-3))),
        ("link-drop@100+2us", Fault("link-drop", at=100, length=clocks(2e-6))),
        ("nak-storm@1s+0.5s", Fault("nak-storm", at=clocks(1.0), length=clocks(0.5))),
        ("perst-stuck", Fault("perst-stuck")),
        ("pcie-dead=1000-1fff", Fault("pcie-dead", low=0x1000, high=0x1FFF)),
        ("pcie-dead=ABC", Fault("pcie-dead", low=0xABC, high=0xABC)),
        ("pcie-late=0-f+9ms", Fault("pcie-late", length=clocks(9e-3), high=15)),
        ("pcie-stale=0-f+9ms", Fault("pcie-stale", length=clocks(9e-3), high=15)),
        ("flash-flip=100.3", Fault("flash-flip", low=0x100, high=0x100, bit=3)),
        ("power-cut@7", Fault("power-cut", at=7)),
        ("bulk-error@7", Fault("bulk-error", number=7)),
        ("bit-flip@7", Fault("bit-flip", number=7)),
        ("bit-flip@7=1f4.3", Fault("bit-flip", number=7, byte=0x1F4, bit=3)),
        ("bad-cable=1e-4", Fault("bad-cable", chance=1e-4)),
        ("bad-cable=.25", Fault("bad-cable", chance=0.25)),
        ("kernel-hang@3", Fault("kernel-hang", number=3)),
        ("kernel-hang@20ms", Fault("kernel-hang", at=clocks(20e-3))),
        ("supply-sag@1s+300ms", Fault("supply-sag", at=clocks(1.0), length=clocks(0.3))),
        ("host-stop@1s+2s", Fault("host-stop", at=clocks(1.0), length=clocks(2.0))),
    ],
)
def test_each_form(text: str, fault: Fault) -> None:
    assert faults.parse(text) == fault


@pytest.mark.parametrize(
    "text",
    [
        "",
        "fire",
        "link-drop",
        "link-drop@soon",
        "nak-storm@1ms",
        "pcie-dead=",
        "pcie-dead=2000-1000",
        "perst-stuck@1",
        "flash-flip=100.8",
        "power-cut@-1",
        "bulk-error",
        "bulk-error@0",
        "bulk-error@5ms",
        "bad-cable",
        "bad-cable=2",
        "bad-cable=1e4",
        "kernel-hang@soon",
        "supply-sag@1s",
        "heat@1s",
        "@5ms",
    ],
)
def test_anything_else_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        faults.parse(text)
    assert caught.value.hint or "range" in str(caught.value)


@pytest.mark.parametrize("form", faults.FORMS.values(), ids=list(faults.FORMS))
def test_examples_are_of_their_form(form: faults.Form) -> None:
    kind = form.example.partition("@")[0].partition("=")[0]
    assert faults.FORMS[faults.parse(form.example).kind] is form is faults.FORMS[kind]
    assert not form.torment or faults.parse(form.torment).kind == kind


def test_those_of_a_device_string() -> None:
    spec = "emulated?inject=link-drop@320ms+20ms,bulk-error@7&speed=high&inject=perst-stuck"
    found = described(spec)[1].faults
    assert [fault.kind for fault in found] == ["link-drop", "bulk-error", "perst-stuck"]
    for wrong in ("inject=", "inject=fire@1", "inject=bulk-error@7,", "inject=heat@1s+1s"):
        with pytest.raises(UsageError) as caught:
            described(f"emulated?{wrong}")
        assert caught.value.hint


def test_the_help_names_every_fault() -> None:
    assert emulate.FAULTS.split(", ") == list(faults.FORMS)


def test_heat_has_an_amount() -> None:
    assert faults.parse("heat@1s+3s").amount == 0
    assert faults.parse("heat@1s+3s=70").amount == 70
    for wrong in ("heat@1s+3s=", "heat@1s+3s=0", "heat@1s+3s=101", "heat@1s=70"):
        with pytest.raises(UsageError):
            faults.parse(wrong)


def test_durations() -> None:
    assert faults.duration("800") == 800
    assert faults.duration("7us") == 800
    assert faults.duration("0.5s") == clocks(0.5)
    with pytest.raises(UsageError, match="is not a time"):
        faults.duration("5 minutes")
