"""Facts of the chip that contradict each other: sources, each with its evidence, say different things.

Both are kept. Software that needs to follow one of them, such as the emulator, follows the first claim unless
the other is chosen; no board has decided any of these.
"""

from __future__ import annotations

from sdk.facts.disputes import Claim, Dispute
from sdk.facts.registers import Evidence

_OPEN = "open firmware"
_MAKER = "the chip maker's firmware"

SUPER_PLUS_CODE = Dispute(
    "super-plus-code",
    "What USB_LINK_SPEED reads on a link of 10 Gb/s.",
    (
        Claim(
            "3", "3, SuperSpeedPlus; the open firmware prints it.", Evidence.TRACE, f"{_OPEN}, registers.h"
        ),
        Claim(
            "2",
            "2, as at 5 Gb/s. The maker's firmware compares with 2 only, and answers as a USB 2 device to 3.",
            Evidence.INFERRED,
            _MAKER,
        ),
    ),
)
SS_UP = Dispute(
    "ss-up",
    "Who sets USB_PHY_CONTROL.SS_UP.",
    (
        Claim(
            "hardware",
            "The link: it reads 1 at SuperSpeed with the open firmware, which never writes it. Here the CPU "
            "may write it too.",
            Evidence.HARDWARE,
            f"{_OPEN}, registers.h",
        ),
        Claim(
            "firmware",
            "The CPU alone. The maker's firmware sets and clears it itself; it runs with either.",
            Evidence.INFERRED,
            f"{_MAKER}, disassembled",
        ),
    ),
)
LINK_MASKS = Dispute(
    "link-masks",
    "Whether 0x9303 to 0x9305 keep masked bits of 0x9300 to 0x9302 from causing an interrupt.",
    (
        Claim(
            "ignored",
            "They only store. The open firmware writes 0x33, which would mask SS_OK, and handles SS_OK in "
            "its interrupt handler; ours does too.",
            Evidence.TRACE,
            f"{_OPEN}, usb.h and main.c",
        ),
        Claim(
            "applied",
            "They mask. The maker's firmware writes to each event register the complement of its mask, and "
            "never looks at SS_OK or clears it.",
            Evidence.INFERRED,
            f"{_MAKER}, disassembled",
        ),
    ),
)
MSC_ARMING = Dispute(
    "msc-arming",
    "What arms the mass-storage engine, and until when.",
    (
        Claim(
            "control",
            "MSC_CONTROL, whatever MSC_CONFIG holds, until 0 is written to MSC_CONFIG or the controller is "
            "powered off; bus resets leave it armed. The maker's firmware arms it at 0, as the link trains.",
            Evidence.TRACE,
            _MAKER,
        ),
        Claim(
            "config",
            "MSC_CONTROL while MSC_CONFIG is not 0; a bus reset disarms it.",
            Evidence.INFERRED,
            f"{_OPEN}, registers.h: 0 disables the engine, 7 enables it",
        ),
    ),
)
FLASH_GATE = Dispute(
    "flash-gate",
    "Whether the flash controller needs FLASH_GATE.FLASH.",
    (
        Claim(
            "open",
            "It runs without. The maker's firmware and later revisions of the open firmware never set it.",
            Evidence.TRACE,
            f"{_MAKER}; {_OPEN}, flash.h",
        ),
        Claim("needed", "No transaction runs without it.", Evidence.GUESS, f"{_OPEN}, e4_flash.py"),
    ),
)
BULK_OUT_WRITES = Dispute(
    "bulk-out-writes",
    "Whether the CPU can write the buffer at 0x7000.",
    (
        Claim(
            "stored",
            "It can, except that it races with a flash transaction that uses the buffer. A test on the chip "
            "writes and reads it back.",
            Evidence.TRACE,
            f"{_OPEN}, test_pcie_fuzz.py and flash.h; commaai/openpilot, chestnut/flash.py fills it so",
        ),
        Claim(
            "ignored", "Writes are ignored.", Evidence.HARDWARE, "cyrozap/usb-to-pcie-re, of a sibling chip"
        ),
    ),
)
PERST_L0 = Dispute(
    "perst-l0",
    "Whether the PCIe link reaches L0 while PERST# is asserted.",
    (
        Claim("released", "Only once PERST# is released.", Evidence.TRACE, f"{_OPEN}, main.c"),
        Claim(
            "asserted",
            "As soon as slot and port have power. The script waits for L0 first, and releases PERST# then; "
            "the firmware may have brought the link up before.",
            Evidence.INFERRED,
            f"{_OPEN}, pcie_bringup_min.py",
        ),
    ),
)
DMA_ARM = Dispute(
    "dma-arm",
    "What becomes of a write of DMA_ARM while slot DMA takes a transfer to the SRAM.",
    (
        Claim(
            "queue",
            "The next transfer begins when this one has ended. A published driver arms a chunk while the "
            "last one streams, all the time; that the engine waits is inferred. Software that is to work on "
            "either waits before it arms again, as our firmware does.",
            Evidence.INFERRED,
            "open host driver, usb.py",
        ),
        Claim(
            "replace",
            "The next one begins at once, and the rest of this one is lost: an older note has it as "
            "undefined.",
            Evidence.GUESS,
            "asm2464pd notes",
        ),
    ),
)
ROM_BULK = Dispute(
    "rom-bulk",
    "From when on the mask ROM's boot loader takes bulk transfers.",
    (
        Claim(
            "configured", "As soon as it is configured, as any device.", Evidence.GUESS, "USB 2.0, 9.1.1.5"
        ),
        Claim(
            "reset",
            "After a reset of its port that follows its first configuration: the updater of a dock with this "
            "chip resets the port, and sets the configuration, before it sends anything in bulk.",
            Evidence.TRACE,
            "commaai/openpilot, chestnut/flash.py",
        ),
    ),
)

DISPUTES = (
    SUPER_PLUS_CODE,
    SS_UP,
    LINK_MASKS,
    MSC_ARMING,
    FLASH_GATE,
    BULK_OUT_WRITES,
    PERST_L0,
    DMA_ARM,
    ROM_BULK,
)
"""All of them."""
