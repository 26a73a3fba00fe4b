"""docs/protocol.md is made from the facts, and consistent; tests/e2e has a host made from it."""

from __future__ import annotations

import re

import pytest

from firmware import generate
from firmware.generate import protocol
from firmware.protocol import commands
from sdk.facts.registers import FactError
from tests.protocol_page import Page, sealed, sums


@pytest.fixture(scope="module")
def page() -> Page:
    return Page()


def test_it_is_what_the_facts_make_of_the_template():
    assert generate.outputs()[generate.PROTOCOL] == generate.PROTOCOL.read_text(encoding="utf-8"), (
        f"run {protocol.REGENERATE}"
    )


@pytest.mark.parametrize(
    ("template", "complaint"),
    [("@limits@ @nonsense@", "unknown pieces: ['nonsense']"), ("nothing", "not used: ['limits']")],
)
def test_a_template_and_its_pieces_must_agree(template, complaint):
    with pytest.raises(FactError, match=re.escape(complaint)):
        protocol.filled(template, {"limits": ""})


def test_a_cause_without_a_meaning_is_refused(monkeypatch):
    monkeypatch.setattr(protocol, "MEANINGS", {**protocol.MEANINGS, "bad luck": "not a cause"})
    with pytest.raises(FactError, match="bad luck"):
        protocol.markdown()


def test_every_opcode_cause_and_member_is_on_it(page):
    assert {name: one.code for name, one in page.operations.items()} == {
        opcode.name: opcode.code for opcode in commands.OPCODES
    }
    assert page.causes == dict(commands.RESULT_TRAILER.member("cause").values)
    for struct in commands.STRUCTS:
        layout = page.layout(struct.name)
        assert layout.size == struct.size
        assert [*layout.places] == [member.name for member in struct.members]


def test_the_examples_follow_its_rule_for_checksums(page):
    header, packet = page.layout("LIST_HEADER"), page.layout("PAYLOAD_HEADER")
    example = page.bytes_after("A list, as it travels")
    assert header.unpack(example[: header.size]) | {"length": len(example)} == header.unpack(
        example[: header.size]
    )
    assert sums(example) == (0, 0)
    assert sealed(example[:-2] + bytes(2), len(example) - 2) == example
    payload = page.bytes_after("A packet of payload with two dwords")
    place = packet.places["check"][0]
    assert sealed(payload[:place] + bytes(2) + payload[place + 2 :], place) == payload
    assert payload[packet.size :] == (0x12345678).to_bytes(4, "little") + (0xDEADBEEF).to_bytes(4, "little")
