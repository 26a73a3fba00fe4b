"""Flags of the ALU against the manual's words, written down once more in whole numbers."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.mcs51_bench import ACC, PSW, B, Bench

CY, AC, OV, P = 0x80, 0x40, 0x04, 0x01
BYTES = st.integers(0, 255)


@pytest.fixture(scope="module")
def run():
    """(acc, b, psw) after one instruction from (acc, b, psw, R0 = operand)."""
    bench = Bench({0x1000: "28", 0x1100: "38", 0x1200: "98", 0x1300: "A4", 0x1400: "84", 0x1500: "D4",
                   0x1600: "33", 0x1700: "13", 0x1800: "F5D0", 0x1900: "B800FD"})  # fmt: skip
    places = {"ADD": 0x1000, "ADDC": 0x1100, "SUBB": 0x1200, "MUL": 0x1300, "DIV": 0x1400, "DA": 0x1500,
              "RLC": 0x1600, "RRC": 0x1700, "MOV PSW,A": 0x1800, "CJNE": 0x1900}  # fmt: skip

    def execute(name, acc, operand, psw):
        cpu = bench.cpu
        for register, value in ((ACC, acc), (B, operand), (PSW, psw & ~0x18)):
            cpu.set_sfr(register, value)
        cpu.iram[0] = operand
        cpu.pc = places[name]
        bench.steps(1)
        return cpu.sfr(ACC), cpu.sfr(B), cpu.sfr(PSW)

    return execute


def signed(value):
    return value - 256 if value & 0x80 else value


def flags(psw, *, carry=None, half=None, overflow=None, acc):
    """The PSW with some flags replaced, and the parity of ACC."""
    for mask, value in ((CY, carry), (AC, half), (OV, overflow), (P, acc.bit_count() % 2 == 1)):
        if value is not None:
            psw = psw | mask if value else psw & ~mask
    return psw & ~0x18


@given(acc=BYTES, operand=BYTES, psw=BYTES, name=st.sampled_from(["ADD", "ADDC"]))
@settings(max_examples=150)
def test_addition(run, name, acc, operand, psw):
    carry = psw >> 7 if name == "ADDC" else 0
    total = acc + operand + carry
    result, _, after = run(name, acc, operand, psw)
    assert result == total % 256
    assert after == flags(
        psw,
        carry=total > 255,
        half=acc % 16 + operand % 16 + carry > 15,
        overflow=not -128 <= signed(acc) + signed(operand) + carry <= 127,
        acc=result,
    )


@given(acc=BYTES, operand=BYTES, psw=BYTES)
@settings(max_examples=150)
def test_subtraction(run, acc, operand, psw):
    borrow = psw >> 7
    result, _, after = run("SUBB", acc, operand, psw)
    assert result == (acc - operand - borrow) % 256
    assert after == flags(
        psw,
        carry=operand + borrow > acc,
        half=operand % 16 + borrow > acc % 16,
        overflow=not -128 <= signed(acc) - signed(operand) - borrow <= 127,
        acc=result,
    )


@given(acc=BYTES, operand=BYTES, psw=BYTES)
def test_multiplication_and_division(run, acc, operand, psw):
    low, high, after = run("MUL", acc, operand, psw)
    assert low + 256 * high == acc * operand
    assert after == flags(psw, carry=False, overflow=acc * operand > 255, acc=low)
    quotient, remainder, after = run("DIV", acc, operand, psw)
    if operand:
        assert (quotient, remainder) == divmod(acc, operand)
    assert after == flags(psw, carry=False, overflow=operand == 0, acc=quotient)


@given(
    tens=st.tuples(*[st.integers(0, 9)] * 2), units=st.tuples(*[st.integers(0, 9)] * 2), carry=st.booleans()
)
def test_decimal_adjust_makes_decimal_sums(run, tens, units, carry):
    one, other = (10 * t + u for t, u in zip(tens, units, strict=True))
    packed = [16 * t + u for t, u in zip(tens, units, strict=True)]
    binary, _, psw = run("ADDC", *packed, CY if carry else 0)
    result, _, after = run("DA", binary, 0, psw)
    total = one + other + carry
    assert (result >> 4, result & 15) == divmod(total % 100, 10)
    assert bool(after & CY) == (total > 99)


@given(acc=BYTES, psw=BYTES)
def test_rotation_through_carry(run, acc, psw):
    result, _, after = run("RLC", acc, 0, psw)
    assert (after & CY) << 1 | result == (acc << 1 | psw >> 7)
    back, _, last = run("RRC", result, 0, after)
    assert back == acc
    assert last & CY == psw & CY


@given(acc=BYTES, psw=BYTES)
def test_parity_follows_acc_whatever_is_written_to_it(run, acc, psw):
    _, _, after = run("MOV PSW,A", acc, 0, psw)
    assert after == (acc & 0xFE) | acc.bit_count() % 2


@given(operand=BYTES, psw=BYTES)
def test_comparison_borrows_like_a_subtraction(run, operand, psw):
    """CJNE R0,#0: nothing is below 0."""
    _, _, after = run("CJNE", 0, operand, psw)
    assert after & CY == 0
