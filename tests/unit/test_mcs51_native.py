"""How the native library is built: found in the cache, built once, and the errors if it cannot be."""

import functools
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from emulator import native
from firmware.asm2464pd.registers import tlp
from sdk.errors import EnvironmentMissing, OutputFailed, ToolMissing
from tests.amount import amount

ROOT = Path(__file__).parents[2]

USE = "from emulator.native import library; ffi, lib = library(); print(lib.MCS51_ILLEGAL)"


def test_the_library_offers_what_the_headers_declare():
    ffi, library = native.library()
    cpu = ffi.new("struct mcs51 *")
    assert library.MCS51_NATIVE == 0x20
    assert ffi.offsetof("struct mcs51", "sfr") == ffi.offsetof("struct mcs51", "iram") + 256
    assert len(cpu.page) == 2
    assert native.library() is native.library()


def test_threads_that_load_it_at_once_get_the_same(monkeypatch):
    begun = threading.Barrier(4)
    loaded = functools.cache(native._library.__wrapped__)
    monkeypatch.setattr(native, "_library", loaded)
    found = []

    def load():
        begun.wait()
        found.append(native.library())

    threads = [threading.Thread(target=load) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(each is found[0] for each in found)


def test_a_missing_compiler_is_named_with_its_install_command(monkeypatch, tmp_path):
    monkeypatch.setenv("TOWLINE_CACHE", str(tmp_path))
    monkeypatch.setenv("TOWLINE_CLANG", "/nowhere/clang")
    with pytest.raises(ToolMissing) as caught:
        native._library.__wrapped__()
    assert "clang" in str(caught.value)
    assert "apt-get install" in caught.value.hint
    assert list(tmp_path.iterdir()) == []


def test_a_missing_package_is_named_with_its_install_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "cffi", None)
    with pytest.raises(EnvironmentMissing) as caught:
        native._library.__wrapped__()
    assert caught.value.hint == "pip install 'towline[emulator]'"


@pytest.mark.slow
def test_several_processes_may_build_it_at_once(monkeypatch, tmp_path):
    monkeypatch.setenv("TOWLINE_CACHE", str(tmp_path))
    command = [sys.executable, "-c", USE]
    running = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) for _ in range(amount(2, 4))]
    assert {process.communicate(timeout=120)[0] for process in running} == {b"5\n"}
    assert len(list((tmp_path / "emulator").iterdir())) == 1


@pytest.mark.slow
def test_a_damaged_library_is_built_again(monkeypatch, tmp_path):
    monkeypatch.setenv("TOWLINE_CACHE", str(tmp_path))
    path = native._built()
    good = path.read_bytes()
    path.write_bytes(good[:1000])
    assert subprocess.run([sys.executable, "-c", USE], cwd=ROOT, check=False).returncode == 0
    assert path.read_bytes() == good


def test_a_cache_that_cannot_be_written_is_named_with_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setattr(native, "_build", lambda sources: b"")
    in_the_way = tmp_path / "file"
    in_the_way.touch()
    monkeypatch.setenv("TOWLINE_CACHE", str(in_the_way))
    with pytest.raises(OutputFailed) as caught:
        native._library.__wrapped__()
    assert "TOWLINE_CACHE" in caught.value.hint


def test_the_pcie_engine_leaves_what_is_not_a_whole_dword_of_memory_alone():
    ffi, library = native.library()
    page, memory, engine = ffi.new("uint8_t[]", 256), ffi.new("uint8_t[]", 13), ffi.new("struct tlp *")
    library.tlp_init(engine, page, 100)
    engine.up = engine.range_count = 1
    engine.ranges[0].memory = memory
    page[tlp.TLP_LENGTH.address & 0xFF] = 1

    def launch(base, size, address):
        engine.ranges[0].base, engine.ranges[0].size = base, size
        page[(tlp.TLP_ADDRESS.address & 0xFF) + 3] = address
        return library.tlp_write(engine, 0, tlp.TLP_LAUNCH.address, 0x0F)

    assert launch(0, 13, 8) == library.TLP_NOTHING
    assert launch(0, 13, 12) == library.TLP_ROUTE
    assert launch(0, 3, 0) == library.TLP_ROUTE
    assert launch(2, 13, 12) == library.TLP_ROUTE
    assert launch(0, 13, 16) == library.TLP_ROUTE
