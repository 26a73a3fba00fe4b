"""The whole card under a driver: boots, and notices each step of its set-up that a driver leaves out.

`pytest -s -k every_skipped` prints the table of all boot steps, and what shows if a driver leaves one out.
"""

import itertools
import re
from collections.abc import Collection
from dataclasses import dataclass

import pytest

from emulator.amdgpu.boot_steps import STEPS
from emulator.amdgpu.card import AmdCard
from tests.amdgpu_driver import HEAP, MIB, Driver, Refused
from tests.amdgpu_host import Host, TimeOut
from tests.amdgpu_probes import PROBES, Session, Wrong, kernel, upload
from tests.amount import amount
from tests.chips import EVERY, GENERATIONS

VRAM = 256 * MIB

SILENT = {
    "gc-agp": "nothing here uses MC addresses below 16 MiB",
    "mmhub-agp": "nothing here uses MC addresses below 16 MiB",
    "gc-aperture-default": "nothing here reads what is nowhere in the system aperture",
    "mmhub-aperture-default": "nothing here reads what is nowhere in the system aperture",
    "gc-fault-default": "the faulting copy reads page 0 instead of the dummy page",
    "mmhub-fault-default": "nothing here faults in the MM hub",
    "gc-l2-cache": "translation is slower",
    "mmhub-l2-cache": "translation is slower",
    "gc-l2-invalidate": "the model's caches wake up empty",
    "mmhub-l2-invalidate": "the model's caches wake up empty",
    "gc-identity": "only VMIDs other than 0 are concerned",
    "mmhub-identity": "only VMIDs other than 0 are concerned",
    "rlc-safe-mode": "a race with running engines",
    "sh-mem-config": "the kernels here access memory aligned",
    "sh-mem-bases": "the kernels here have no FLAT accesses",
    "acquire-code": "the model runs the new code",
    "acquire-scalar": "the model loads the new arguments",
    "hqd-quantum": "one queue has the pipe to itself here",
}
"""Steps whose omission only the findings show: silicon may continue, here or always; and why."""


@dataclass
class Attempt:
    """A boot and its result: what failed for the driver, and the findings' steps."""

    card: AmdCard
    driver: Driver
    symptoms: list[str]

    @property
    def steps(self) -> set[str]:
        return self.card.diagnosis.steps


def attempt(chip: str, skip: Collection[str] = ()) -> Attempt:
    card = AmdCard(chip, VRAM)
    driver = Driver(Host(card), card.chip, skip)
    done = Attempt(card, driver, [])
    try:
        driver.boot()
        session = Session(driver)
    except (TimeOut, Refused) as problem:
        done.symptoms.append(f"boot: {problem}")
        return done
    for probe in PROBES:
        try:
            probe(session)
        except (TimeOut, Refused, Wrong) as problem:
            done.symptoms.append(f"{probe.__name__}: {problem}")
            break
    return done


pytestmark = pytest.mark.usefixtures("quiet_card")


@pytest.fixture(scope="module", params=EVERY)
def complete(request) -> Attempt:
    return attempt(request.param)


PROVOKED = ("page fault in GC", "SDMA0 queue 0 stops", "SDMA queue hangs", "an interrupt ring is full")
"""What the probes do on purpose."""


@pytest.mark.slow
def test_complete_boot(complete):
    assert complete.symptoms == []
    assert complete.steps == set()
    findings = [finding.symptom for finding in complete.card.diagnosis.findings]
    assert [text for text in findings if not text.startswith(PROVOKED)] == []


@pytest.mark.slow
def test_rows_and_what_the_driver_does_are_the_same():
    done = [set(attempt(chip).driver.asked) for chip in GENERATIONS]
    assert set.union(*done) == set(STEPS)
    for step in set(STEPS) - set.intersection(*done):  # one chip only, and the row says which
        assert re.search("gfx11|gfx12|MP0 1[34]", STEPS[step].what), step


# -- skipped steps ------------------------------------------------------------------------------------------

QUICK = (
    "pcie-bus-master", "hdp-flush", "nbio-doorbell-aperture", "mmhub-context0", "gc-invalidate", "ih-enable",
    "psp-toc", "psp-fw-rlc-g", "rlc-autoload", "smu-features", "mec-active", "hqd-doorbell", "sdma-unhalt",
)  # fmt: skip


def omit(chip: str, step: str) -> tuple[str, str] | None:
    """Leave a step out: what the driver sees, and the finding. None if the chip has no such step.

    Fails if it goes unnoticed.
    """
    done = attempt(chip, {step})
    if step not in done.driver.asked:
        return None
    findings = [finding.symptom for finding in done.card.diagnosis.findings if finding.step == step]
    assert findings, f"{chip}, {step}: nothing is found; the driver sees {done.symptoms}"
    if step not in SILENT:
        assert done.symptoms, f"{chip}, {step}: the driver sees nothing of it; {findings}"
    return done.symptoms[0] if done.symptoms else f"({SILENT[step]})", findings[0]


@pytest.mark.slow
@pytest.mark.parametrize(("step", "chip"), [*zip(QUICK, itertools.cycle(GENERATIONS), strict=False)])
def test_skipped_step_is_noticed(step, chip):
    assert omit(chip, step) is not None


@pytest.mark.slow
@pytest.mark.parametrize("chip", GENERATIONS)
def test_every_skipped_step_is_noticed(chip):
    """Every other one on one chip, the rest on the other; with `--thorough` all on both."""
    steps = list(STEPS)[amount(slice(GENERATIONS.index(chip), None, 2), slice(None))]
    rows = {step: omit(chip, step) for step in steps}
    rows = {step: row for step, row in rows.items() if row is not None}
    print(f"\n{chip}: {len(rows)} boot steps, each left out in turn\n")
    print(f"{'step':27}{'grade':10}{'what the driver sees':75}what the card says")
    for step, (seen, said) in rows.items():
        said = said.removesuffix(f": boot step {step} is missing")
        print(f"{step:27}{STEPS[step].grade:10}{seen[:73]:75}{said}")
    assert len(rows) > amount(35, 75)


def test_silent_steps_are_rows():
    assert set(SILENT) <= set(STEPS)


# -- resets -------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("keeps", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("chip", EVERY)
def test_boot_reset_boot(chip, keeps):
    """A mode-1 reset undoes everything: the second boot is like the first, and needs every step again."""
    card = AmdCard(chip, VRAM, keeps_vram=keeps)
    driver = Driver(Host(card), card.chip)
    driver.boot()
    upload(Session(driver))
    driver.vram(HEAP, b"left over")
    driver.reset()
    assert (driver.vram_read(HEAP, 9) == b"left over") is keeps
    assert driver.read("MP", driver.mailbox(81)) == 0
    second = Driver(driver.host, card.chip)
    second.boot()
    session = Session(second)
    upload(session)
    kernel(session)
    assert card.diagnosis.findings == []


class TablesFirst(Driver):
    """Writes its page tables before it resets the card, and uses them after that."""

    def boot(self) -> None:
        self.pcie()
        self.discover()
        Driver.map(self)
        self.reset()
        super().boot()

    def map(self) -> None:
        """They are there."""


@pytest.mark.slow
@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize("chip", GENERATIONS)
def test_page_tables_from_before_a_reset(chip, keeps):
    card = AmdCard(chip, VRAM, keeps_vram=keeps)
    driver = Driver(Host(card), card.chip)
    driver.boot()
    second = TablesFirst(driver.host, card.chip)
    if not keeps:
        with pytest.raises((TimeOut, Refused)):
            second.boot()
        return
    second.boot()
    session = Session(second)
    upload(session)
    kernel(session)
    assert card.diagnosis.findings == []


@pytest.mark.parametrize("chip", GENERATIONS)
def test_second_boot_without_reset_is_noticed(chip):
    card = AmdCard(chip, VRAM)
    driver = Driver(Host(card), card.chip)
    driver.boot()
    with pytest.raises((TimeOut, Refused)):
        Driver(driver.host, card.chip).boot()
    assert any("sOS is alive" in finding.symptom for finding in card.diagnosis.findings)
