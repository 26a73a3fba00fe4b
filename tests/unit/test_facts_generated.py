"""The files generated from the facts: up to date, and accepted by the compiler."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from firmware import generate
from firmware.asm2464pd.describe import ByteRegister
from firmware.asm2464pd.registers import ASM2464PD
from firmware.generate import header
from firmware.protocol.requests import REQUESTS
from sdk.facts.registers import FactError, Field

PROGRAM = """
#include "asm2464pd.h"
void main(void)
{
    unsigned char twice = UART_RBR;
    twice = UART_RBR;
    CPU_DPX = 1;
    CPU_IE_EA_BIT = 1;
    EP0_IN_LENGTH_HIGH = EP0_IN_LENGTH_LOW;
    EP0_BUFFER[CSW_TAG_OFFSET] = MSC_CBW_TAG_0 & USB_EVENTS_CONTROL;
    while (twice != REQUEST_XDATA_READ) ;
}
"""


def test_the_files_checked_in_are_up_to_date():
    assert generate.differences() == "", f"run {header.REGENERATE}"


def test_check_reports_a_stale_file_by_its_exit_status(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(generate, "outputs", lambda: {tmp_path / "made.h": "new\n"})
    assert generate.main(["--check"]) == 1
    assert "+new" in capsys.readouterr().out
    assert generate.main([]) == 0
    assert generate.main(["--check"]) == 0


def test_two_facts_with_one_c_name_are_refused(monkeypatch):
    clash = next(register for register in ASM2464PD if register.name == "EP0_PHASE")
    field = ByteRegister("EP0", clash.space, 0x9200, clash.evidence, "", fields=(Field("PHASE", 0),))
    monkeypatch.setattr(header, "BLOCKS", {"cpu": (), "usb": (clash, field)})
    with pytest.raises(FactError, match="EP0_PHASE: two facts"):
        header.c_header()


def test_the_reference_lists_every_register_request_and_structure():
    text = generate.REFERENCE.read_text()
    missing = [
        register.name
        for register in ASM2464PD
        if not register.name.startswith("PHY_") and f"`{register.name}`" not in text
    ]
    assert missing == []
    assert [request.name for request in REQUESTS if f"`{request.name}`" not in text] == []
    assert [struct.name for struct in header.STRUCTS if f"### {struct.name}" not in text] == []


@pytest.mark.skipif(shutil.which("sdcc") is None, reason="sdcc is not installed")
def test_the_header_compiles_and_reads_a_fifo_as_often_as_the_source_does(tmp_path):
    source = tmp_path / "program.c"
    source.write_text(PROGRAM)
    include = f"-I{generate.HEADER.parent}"
    command = ["sdcc", "-mmcs51", "--std-sdcc11", "--Werror", include, "-S", str(source), "-o", "program.asm"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    made = (tmp_path / "program.asm").read_text()
    assert made.count("movx\ta,@dptr") == 4  # UART_RBR twice, EP0_IN_LENGTH_LOW, MSC_CBW_TAG_0
