"""Findings: each is reported once, and a flood of them is cut."""

from emulator.amdgpu.boot_steps import REMEDIES
from emulator.amdgpu.diagnosis import ALIKE, Diagnosis


def test_each_finding_is_reported_once():
    heard = []
    diagnosis = Diagnosis(lambda: 7)
    diagnosis.observers.append(heard.append)
    for _ in range(2):
        diagnosis.missing("sdma-unhalt", "the doorbell has no effect")
        diagnosis.wrong("the doorbell has no effect")
    assert [(one.step, one.clock) for one in heard] == [("sdma-unhalt", 7), ("", 7)]
    assert diagnosis.findings == heard
    assert diagnosis.steps == {"sdma-unhalt"}


def test_findings_of_a_kind_are_limited():
    diagnosis = Diagnosis(lambda: 0)
    for page in range(1000):
        diagnosis.wrong(f"page fault: read of {page << 12:#x} by SDMA0")
        diagnosis.wrong(f"page fault: write to {page << 12:#x} by SDMA0")
    reported = [one.symptom for one in diagnosis.findings]
    reads = [text for text in reported if "read of" in text]
    assert reads[:ALIKE] == [f"page fault: read of {page << 12:#x} by SDMA0" for page in range(ALIKE)]
    assert reads[ALIKE] == "page fault: read of 0x4000 by SDMA0; more of this kind are not reported"
    assert len(reported) == 2 * (ALIKE + 1)


def test_without_an_observer_the_log_says_what_the_missing_step_does(caplog):
    diagnosis = Diagnosis(lambda: 7)
    diagnosis.remedies = REMEDIES
    diagnosis.missing("sdma-unhalt", "the doorbell has no effect")
    diagnosis.wrong("the doorbell has another effect")
    first, second = caplog.messages
    assert "sdma-unhalt" in first
    assert REMEDIES["sdma-unhalt"] in first
    assert second == "gpu: the doorbell has another effect"
