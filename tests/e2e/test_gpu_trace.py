"""Our cold boot beside the published ones: the same registers, in the same order, with the same values.

What differs is in `DIFFERENCES`, each with its reason; anything else fails, and so does a row that is no
longer true. Left out on both sides: flushes of the HDP, which are not a register, and how often something was
polled.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from functools import cache

import pytest

from sdk.facts.registers import Evidence
from tests.amdgpu_replay import expanded
from tests.gpu_host import Bench
from usbgpu.amd.facts.chips import CHIPS, Chip
from usbgpu.amd.facts.smu import interface

PUBLISHED = {name: chip for name, chip in CHIPS.items() if chip.evidence is Evidence.TRACE}
PLACE = "another place in VRAM (`usbgpu.amd.layout`), and VRAM is where the card reports it, not at 0"
ORDER_OF_TLB = "invalidated once the hub translates; before that it caches nothing"
DIFFERENCES: tuple[tuple[str, str], ...] = (
    (
        r"besides R MP:\w+_SMN_C2PMSG_33",
        "the card's own firmware has started, and written the discovery table",
    ),
    (r"(besides|without) R NBIO:BIF_BX0_REMAP_HDP_MEM_FLUSH_CNTL", "read once, not for each flush"),
    (r"without R GC:SCRATCH_REG7", "read of a card that has a boot record, only"),
    (
        r"(besides|without) R MP:\w+_SMN_C2PMSG_81",
        "read before anything is done, and when the bootloader and the ring are ready",
    ),
    (r"besides R MP:\w+_SMN_C2PMSG_64", "81 is read once it is ready: a list can wait for that"),
    (r"(besides|without) [RW] MMHUB:MMVM_INVALIDATE_ENG17_(SEM|REQ|ACK)", ORDER_OF_TLB),
    (r"(besides|without) [RW] MMHUB:MMVM_L2_BANK_SELECT_RESERVED_CID2", ORDER_OF_TLB),
    (r"besides [RW] GC:GCVM_INVALIDATE_ENG17_(REQ|ACK)", ORDER_OF_TLB),
    (r"value W \w+:\w+_SYSTEM_APERTURE_LOW_ADDR", PLACE),
    (r"value W \w+:\w+_SYSTEM_APERTURE_HIGH_ADDR: .*ff, ", "the aperture ends with the last byte of VRAM"),
    (r"value W \w+:\w+_(SYSTEM_APERTURE|PROTECTION_FAULT)_DEFAULT_ADDR_(LSB|LO32)", PLACE),
    (
        r"value W \w+:\w+_L2_CNTL: 0x80601, not 0x80801",
        "the default page is in VRAM: stray accesses must not hit the bridge's SRAM; the rest as after "
        "power-on",
    ),
    (r"besides R \w+:\w+_CONTEXT0_CNTL", "fields are replaced, the others stay"),
    (r"value W OSSSYS:IH_RB_(BASE|BASE_RING1|WPTR_ADDR_LO|WPTR_ADDR_HI)", PLACE),
    (r"besides R MP:\w+_SMN_C2PMSG_35", "the bootloader is ready before anything goes up"),
    (
        r"value W MP:\w+_SMN_C2PMSG_36: 0x220000[1-8], ",
        "many blobs go up at a time, each with its own address",
    ),
    (r"without R MP:\w+_SMN_C2PMSG_71", "the secure OS has just started: it has no ring"),
    (r"value W MP:\w+_SMN_C2PMSG_(69|70)", PLACE),
    (r"without R MP:\w+_SMN_C2PMSG_67", "how many commands there were is known"),
    (r"value SMU SetDriverDramAddr(High|Low)", PLACE),
    (
        r"besides SMU Get(Min|Max)DpmFreq",
        "the two ends of a clock's range are read, while engines start",
    ),
    (r"without SMU GetDpmFreqByIndex", "levels between them are not needed"),
    (
        r"value SMU SetSoft(Min|Max)ByFreq: 0x\w+, not 0x0",
        "the trace does not show the frequencies of its mock",
    ),
    (r"besides R GC:RLC_RLCS_BOOTLOAD_STATUS", "the end of autoload is waited for, as by Linux"),
    (r"value W GC:CP_MEC_RS64_CNTL: 0x400[01]0000, ", "halted, as after power-on, until it is started"),
    (r"without R GC:CP_RB_WPTR_POLL_CNTL", "all of it is replaced"),
    (r"(besides|without) W GC:SCRATCH_REG6 0x1", "in use from the moment that queues are set up"),
    (r"besides W GC:SCRATCH_REG5", "the boot record's checksum"),
    (r"value W GC:SCRATCH_REG7: ", "a number of its own: page tables and record are this driver's"),
)
"""What is different, as a regular expression for the start of lines of `differences`; and why."""


@dataclass(frozen=True)
class Event:
    """An access. `key` is what and where; `value` what was written, in the bits of `mask`."""

    key: str
    value: int = 0
    mask: int = 0xFFFF_FFFF


def published(chip: Chip) -> list[Event]:
    """The published boot."""
    events = []
    for line in expanded("boot", chip.generation):
        match line:
            case ("R", register) | ("P", register, _, _):
                events.append(Event(f"R {register}"))
            case ("W", register, value):
                events.append(Event(f"W {register}", int(value, 0) if value != "level" else 0))
            case ("M", register, "wptr"):
                events += [Event(f"R {register}"), Event(f"W {register}", mask=0)]
            case ("M", register, value, *clear):
                bits = int(value, 0) | int(clear[0] if clear else "0", 0)
                events += [Event(f"R {register}"), Event(f"W {register}", int(value, 0), bits)]
    return folded(chip, events)


def ours(chip: Chip) -> list[Event]:
    """Our boot."""
    bench = Bench(chip.name)
    events: list[Event] = []
    kinds = {"read": "R", "write": "W"}
    bench.card.register_observers.append(
        lambda kind, block, register, value: events.append(
            Event(f"{kinds[kind]} {block}:{register.name}", value * (kind == "write"))
        )
    )
    assert bench.start().cold
    return folded(chip, events)


def folded(chip: Chip, events: list[Event]) -> list[Event]:
    """Accesses through RSMU by the register that they reach, polls once, messages to the SMU as one."""
    direct: list[Event] = []
    index = 0
    for event in events:
        kind, _, register = event.key.partition(" ")
        if register == "NBIO:BIF_BX_PF0_RSMU_INDEX":
            index = event.value
            continue
        if register == "NBIO:BIF_BX_PF0_RSMU_DATA":
            block, far = chip.by_address[index >> 2]
            event = Event(f"{kind} {block}:{far.name}", event.value, event.mask)
        if event.key in [each.key for each in direct[-1:]] and (kind == "R" or direct[-1] == event):
            continue
        direct.append(event)
    names = {number: name for name, number in interface(chip).messages.items()}
    mailbox = [
        f"{kind} SMU:MP1_SMN_C2PMSG_{number}" for kind, number in (("W", 90), ("W", 82), ("W", 66), ("R", 90))
    ]
    result = []
    while direct:
        if [event.key for event in direct[:4]] == mailbox:
            name = names[direct[2].value]
            result.append(Event(f"SMU {name}", direct[1].value))
            direct = direct[4 + (len(direct) > 4 and direct[4].key == "R SMU:MP1_SMN_C2PMSG_82") :]
        else:
            result.append(direct.pop(0))
    return result


@cache
def differences(name: str) -> list[str]:
    """What is different, a line each."""
    chip = CHIPS[name]
    return compared(published(chip), ours(chip))


def compared(theirs: list[Event], mine: list[Event]) -> list[str]:
    """The same of any two."""
    found = []
    matcher = difflib.SequenceMatcher(
        None, [event.key for event in theirs], [event.key for event in mine], autojunk=False
    )
    for what, a, b, c, d in matcher.get_opcodes():
        if what == "equal":
            for one, other in zip(theirs[a:b], mine[c:d], strict=True):
                if (one.value ^ other.value) & one.mask:
                    found.append(f"value {one.key}: {other.value:#x}, not {one.value:#x}")
        else:
            found += [f"without {event.key} {event.value:#x}" for event in theirs[a:b]]
            found += [f"besides {event.key} {event.value:#x}" for event in mine[c:d]]
    return found


@pytest.mark.parametrize("chip", PUBLISHED)
def test_boot_is_the_published_one_but_for_listed_differences(chip: str) -> None:
    unlisted = [line for line in differences(chip) if not any(re.match(row, line) for row, _ in DIFFERENCES)]
    assert unlisted == []


@pytest.mark.parametrize("chip", PUBLISHED.values(), ids=PUBLISHED)
def test_what_is_done_elsewhere_is_done_in_the_same_way(chip: Chip) -> None:
    """Values and order of the MM hub's invalidation, whose place is a listed difference."""
    theirs, mine = (
        [event for event in boot if re.search("MMHUB:.*(ENG17_(SEM|REQ|ACK)|RESERVED_CID2)", event.key)]
        for boot in (published(chip), ours(chip))
    )
    assert len(theirs) == len(mine) == 7
    assert compared(theirs, mine) == []


def test_every_listed_difference_exists() -> None:
    lines = [line for chip in PUBLISHED for line in differences(chip)]
    assert [row for row, _ in DIFFERENCES if not any(re.match(row, line) for line in lines)] == []


def test_other_boots_are_detected() -> None:
    """The comparison sees an access that is missing, one too many, and another value."""
    boot = published(CHIPS["gfx1100"])
    assert len(boot) > 300
    place = next(index for index, event in enumerate(boot) if event.key == "W GC:RLC_SPM_MC_CNTL")
    less, more, other = (
        boot[:place] + boot[place + 1 :],
        [*boot[:place], Event("R GC:CP_STAT"), *boot[place:]],
        [*boot[:place], Event(boot[place].key, 0xE), *boot[place + 1 :]],
    )
    assert compared(boot, boot) == []
    assert compared(boot, less) == ["without W GC:RLC_SPM_MC_CNTL 0xf"]
    assert compared(boot, more) == ["besides R GC:CP_STAT 0x0"]
    assert compared(boot, other) == ["value W GC:RLC_SPM_MC_CNTL: 0xe, not 0xf"]
