"""Findings: each is told once, and a flood of them is not."""

from emulator.amdgpu.diagnosis import ALIKE, Diagnosis


def test_each_finding_is_told_once():
    heard = []
    diagnosis = Diagnosis(lambda: 7)
    diagnosis.observers.append(heard.append)
    for _ in range(2):
        diagnosis.missing("sdma-unhalt", "the doorbell has no effect")
        diagnosis.wrong("the doorbell has no effect")
    assert [(one.step, one.clock) for one in heard] == [("sdma-unhalt", 7), ("", 7)]
    assert diagnosis.findings == heard
    assert diagnosis.steps == {"sdma-unhalt"}


def test_findings_of_a_kind_come_to_an_end():
    diagnosis = Diagnosis(lambda: 0)
    for page in range(1000):
        diagnosis.wrong(f"page fault: read of {page << 12:#x} by SDMA0")
        diagnosis.wrong(f"page fault: write to {page << 12:#x} by SDMA0")
    told = [one.symptom for one in diagnosis.findings]
    reads = [text for text in told if "read of" in text]
    assert reads[:ALIKE] == [f"page fault: read of {page << 12:#x} by SDMA0" for page in range(ALIKE)]
    assert reads[ALIKE] == "page fault: read of 0x4000 by SDMA0; what more there is of this kind is not told"
    assert len(told) == 2 * (ALIKE + 1)
