"""The C line of each instruction, from the linker's listings."""

import os

from emulator import line_records, symbols

LISTING = """\
                                    332 ;--------------------------------------------------------
                                    333 \t.area CSEG    (CODE)
                           000000   338 \tC$a.c$1$0_0$3 ==.
                                    339 ;\ta.c:1: void main(void)
      000100                        343 _main:
                           000000   345 \tC$a.c$5$2_0$4 ==.
                           000000   346 \tC$a.c$3$2_0$4 ==.
      000100 7F 00            [12]  347 \tmov\tr7,#0x00
                           000002   348 \tC$a.c$4$2_0$4 ==.
      000102 0F               [12]  349 \tinc\tr7
                           000003  1350 \tC$a.c$3$2_0$4 ==.
      000103 DF FD            [24] 10351 \tdjnz\tr7,00101$
                           000005   352 \tC$a.c$5$1_0$3 ==.
      000105 22               [24]  353 \tret
                           000006   354 \tC$a.c$6$1_0$3 ==.
                                    355 \t.area CONST   (CODE)
      000200 41 42            [12]  356 \t.ascii "AB"
"""
CDB = {(0x100, "a.c", 1): 0, (0x103, "a.c", 3): 0, (0x102, "a.c", 4): 0, (0x105, "a.c", 5): 0}
"""The records that a .cdb has of it."""


def test_a_line_has_every_place_where_its_code_begins():
    found = line_records.read(LISTING, CDB)
    assert sorted(found, key=lambda record: (record[0], found[record])) == [
        (0x100, "a.c", 1), (0x100, "a.c", 5), (0x100, "a.c", 3), (0x102, "a.c", 4), (0x103, "a.c", 3),
        (0x105, "a.c", 5),
    ]  # fmt: skip


def test_a_listing_of_another_build_adds_nothing():
    assert line_records.read(LISTING.replace("000103 DF", "000104 DF"), CDB) == CDB
    elsewhere = {(address + 0x1000, *line): 0 for address, *line in CDB}
    assert line_records.read(LISTING, elsewhere) == elsewhere
    assert line_records.read("Chapter 1\n=========\n", CDB) == CDB


def test_a_second_listing_with_the_same_header():
    header = {(0x305, "a.c", 3): 0}  # the .cdb has only that of the last module
    assert line_records.read(LISTING, CDB | header).keys() > CDB.keys() | header.keys()


def test_the_record_that_ends_an_area_begins_no_code(tmp_path):
    end = {(0x106, "a.c", 6): 0}  # the next module begins there
    assert (0x100, "a.c", 3) in line_records.read(LISTING, CDB | end)
    assert not any(line == 6 for _, _, line in line_records.read(LISTING, CDB))


def records(tmp_path, listing="main"):
    """An image with two modules beside it, one with a listing."""
    lines = "".join(f"L:C${file}${line}$0_0$1:{address:X}\n" for address, file, line in CDB)
    functions = "F:G$main$0_0$0({2}DF,SV:S),C,0,0,0,0,0\nL:G$main$0$0:100\nL:XG$main$0$0:105\n"
    (tmp_path / "both.cdb").write_text(f"M:main\nM:other\n{functions}{lines}")
    (tmp_path / f"{listing}.rst").write_text(LISTING)
    return tmp_path / "both.ihx"


def test_code_belongs_to_the_last_line_that_begins_there(tmp_path):
    table = symbols.beside(records(tmp_path))
    assert [table.line_at(0, place).line for place in range(0x100, 0x106)] == [3, 3, 4, 3, 3, 5]
    assert table.addresses("a.c", 3) == ((0, 0x100), (0, 0x103))
    assert table.addresses("a.c", 5) == ((0, 0x105),)
    assert table.addresses("a.c", 1) == ((0, 0x100),)


def test_a_listing_has_the_name_of_the_image_or_of_a_module(tmp_path):
    image = records(tmp_path, listing="unrelated")
    assert symbols.beside(image).line_at(0, 0x100).line == 1
    os.rename(tmp_path / "unrelated.rst", tmp_path / "both.rst")
    assert symbols.beside(image).line_at(0, 0x100).line == 3
    (tmp_path / "both.rst").write_text(LISTING.replace("a.c", "b.c"))
    assert symbols.beside(image).line_at(0, 0x100).line == 1
