"""Which package may import which, and what the core may need: numpy and pyusb, and nothing else."""

import json
import os
import pkgutil
import shutil
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import grimp
import pytest

import usbgpu
from sdk import artifact
from sdk.segments import split
from sdk.target import Options
from tests.reference_target import ReferenceTarget, install, small_network

ROOT = Path(__file__).parents[2]

CORE = [
    *(
        "sdk.archive",
        "sdk.arithmetic",
        "sdk.artifact",
        "sdk.check",
        "sdk.child",
        "sdk.codec",
        "sdk.errors",
        "sdk.files",
        "sdk.graph",
        "sdk.graph_json",
    ),
    *(
        "sdk.passes",
        "sdk.plan",
        "sdk.preprocess",
        "sdk.reference",
        "sdk.report",
        "sdk.session",
        "sdk.shapes",
        "sdk.target",
        "sdk.telemetry.publisher",
        "sdk.telemetry.reader",
        "sdk.weights",
    ),
    *("sdk.toolchain", "towline"),
]


def run_with_numpy_alone(script, *others):
    """Run a script in an interpreter to which every third-party package but numpy and `others` is missing."""
    guard = f"""
        import sys

        OURS = {{"sdk", "dsp", "usbgpu", "firmware", "towline", "tests", "numpy", *{others!r}}}

        class NumpyAlone:
            def find_spec(self, name, path=None, target=None):
                top = name.partition(".")[0]
                if top not in OURS and top not in sys.stdlib_module_names:
                    raise ModuleNotFoundError(f"No module named {{name!r}} in the core", name=name)

        sys.meta_path.insert(0, NumpyAlone())
    """
    command = [sys.executable, "-c", textwrap.dedent(guard) + textwrap.dedent(script)]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)


@pytest.mark.slow
def test_import_contracts():
    # In a process of its own: it reconfigures logging, and would disable our loggers here.
    script = "from importlinter.cli import lint_imports; raise SystemExit(lint_imports(no_cache=True))"
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout


FLOORS = (("towline",), ("emulator",), ("usbgpu", "dsp"), ("firmware",), ("sdk",))
"""From the roof to the ground: a package sees those below it."""
LEAVES = {
    "towline": "towline._version",
    "emulator": "emulator.faults",
    "usbgpu": "usbgpu.seam",
    "dsp": "dsp.c.plan",
    "firmware": "firmware.build",
}
"""A module of each package that may be seen from above."""
INSIDE = [
    ("emulator", "usbgpu.seam"),
    ("emulator.amdgpu", "usbgpu.amd.pm4"),
    ("emulator", "firmware.protocol.requests"),
    ("sdk.facts", "sdk.errors"),
    ("firmware.asm2464pd", "sdk.graph"),
    ("firmware.protocol", "sdk.graph"),
    ("firmware.asm2464pd", "firmware.protocol.requests"),
    ("firmware.protocol", "firmware.build"),
    ("usbgpu.amd.facts", "sdk.graph"),
    ("usbgpu.amd.facts", "firmware.build"),
    ("usbgpu.amd.facts", "usbgpu.transport.call"),
    ("dsp.c", "dsp.hexagon.plan"),
    ("dsp.hexagon", "dsp.adreno.plan"),
    ("dsp.c", "sdk.reference"),
    ("usbgpu.target", "sdk.reference"),
    ("usbgpu.amd", "usbgpu.target.plan"),
    ("usbgpu.flash", "usbgpu.conform.report"),
    ("usbgpu.bridge", "usbgpu.pcie"),
    ("usbgpu.bridge", "usbgpu.amd.memory"),
    ("usbgpu.transport", "usbgpu.bridge.seam"),
    ("emulator.core", "emulator.pcie.function"),
    ("emulator.pcie", "emulator.usb.wire"),
    ("emulator.usb", "emulator.asm2464pd.chip"),
    ("emulator.amdgpu", "emulator.asm2464pd.chip"),
    ("emulator.asm2464pd", "emulator.mcs51.core"),
    ("emulator.mcs51", "emulator.machine"),
    ("emulator.asm2464pd", "emulator.board"),
]
"""A package, and a module that it must not import though the layers would allow it."""


def forbidden_directions():
    """(importing package, imported module) of every rule: upwards, between siblings, and inside packages."""
    for height, floor in enumerate(FLOORS):
        for package in floor:
            above = [name for higher in FLOORS[:height] for name in higher]
            for other in (*above, *(sibling for sibling in floor if sibling != package)):
                yield package, LEAVES[other]
    yield from INSIDE


@pytest.mark.slow
def test_every_forbidden_direction_is_noticed(tmp_path):
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    assert {name for floor in FLOORS for name in floor} == set(config["root_packages"])
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for package in config["root_packages"]:
        for path in (ROOT / package).rglob("*.py"):
            copy = tmp_path / path.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, copy)
    planted = []
    for number, (package, imported) in enumerate(forbidden_directions()):
        place = tmp_path / package.replace(".", "/")
        assert (place / "__init__.py").exists(), package
        (place / f"planted_{number}.py").write_text(f"import {imported}\n")
        planted.append(f"{package}.planted_{number} -> {imported} (l.1)")
    script = "from importlinter.cli import lint_imports; raise SystemExit(lint_imports(no_cache=True))"
    environment = os.environ | {"PYTHONPATH": str(tmp_path), "COLUMNS": "300"}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False)
    assert done.returncode == 1, done.stderr
    assert [line for line in planted if line not in done.stdout] == []
    broken = {
        contract["name"] for contract in config["contracts"] if f"{contract['name']} BROKEN" in done.stdout
    }
    assert broken == {contract["name"] for contract in config["contracts"]}


def cycles(graph):
    """Modules from which a way leads back to themselves."""

    def reached(start):
        seen, waiting = set(), [start]
        while waiting:
            fresh = graph[waiting.pop()] - seen
            seen |= fresh
            waiting += fresh
        return seen

    return sorted(module for module in graph if module in reached(module))


@pytest.mark.slow
def test_no_files_import_each_other():
    """Not in functions either, nor for types alone."""
    found = grimp.build_graph(*(name for floor in FLOORS for name in floor), cache_dir=None)
    graph = {module: found.find_modules_directly_imported_by(module) for module in found.modules}
    assert "sdk.importers.walk" in graph["sdk.importers.operators"]
    assert cycles(graph) == []


def test_cycles_are_found():
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == ["b", "c"]


@pytest.mark.slow
def test_core_imports_with_numpy_alone():
    done = run_with_numpy_alone("\n".join(f"import {name}" for name in CORE))
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_the_gpu_runtime_imports_with_pyusb():
    modules = [module.name for module in pkgutil.walk_packages(usbgpu.__path__, "usbgpu.")]
    assert len(modules) > 60
    done = run_with_numpy_alone("\n".join(f"import {name}" for name in modules), "usb")
    assert done.returncode == 0, done.stderr


def test_the_guard_guards():
    done = run_with_numpy_alone("import onnx")
    assert "No module named 'onnx' in the core" in done.stderr


@pytest.mark.slow
def test_session_runs_with_numpy_alone(tmp_path):
    install(tmp_path)
    graph = small_network()
    program = ReferenceTarget().compile(split(graph).body, Options())
    artifact.save(artifact.Artifact((program,), graph, "q31"), tmp_path / "net.tow")
    done = run_with_numpy_alone(
        f"""
        sys.path.insert(0, {str(tmp_path)!r})
        import numpy as np
        import towline

        with towline.Session({str(tmp_path / "net.tow")!r}) as session:
            result = session.run({{"picture": np.zeros((1, 1, 4, 4), np.float32)}})
            print(result["probabilities"].shape)
        try:
            towline.compile("net.onnx")
        except towline.Error as error:
            print(type(error).__name__, error.hint)
        """
    )
    assert done.stdout == "(1, 3)\nEnvironmentMissing pip install 'towline[compile]'\n", done.stderr


# -- modules of other projects in the place of ours ---------------------------------------------------------


def start(directory, *command, **options):
    """A Python that finds modules in `directory` first, and ours behind it."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(directory), str(ROOT)])}
    return subprocess.run(
        [sys.executable, *command],
        capture_output=True,
        text=True,
        cwd=directory,
        env=environment,
        check=False,
        **options,
    )


@pytest.fixture(params=["sdk.py", "usbgpu/__init__.py"])
def shadow(request, tmp_path):
    """A file that hides a package of ours from what runs in `tmp_path`."""
    path = tmp_path / request.param
    path.parent.mkdir(exist_ok=True)
    path.write_text("")
    return path


def test_a_module_in_the_place_of_ours_is_named_at_import(shadow, tmp_path):
    done = start(tmp_path, "-c", "import towline")
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("ImportError: ")
    assert str(shadow) in last


@pytest.mark.slow
def test_the_command_says_so_without_a_traceback(shadow, tmp_path):
    done = start(tmp_path, "-m", "towline", "targets")
    assert done.returncode == 3
    assert done.stdout == ""
    assert done.stderr.startswith("towline: error: ")
    assert len(done.stderr.splitlines()) == 1
    assert str(shadow) in done.stderr
    script = tmp_path / "bin" / "towline"
    script.parent.mkdir()
    script.write_text("from towline.__main__ import main\nraise SystemExit(main())\n")
    done = start(tmp_path, str(script), "targets", "--json")
    assert done.returncode == 3
    assert done.stderr == ""
    error = json.loads(done.stdout)["error"]
    assert error["code"] == "environment"
    assert str(shadow) in error["message"]


@pytest.mark.slow
def test_neighbours_of_other_names_are_ignored(tmp_path):
    (tmp_path / "sdk_tools.py").write_text("")
    (tmp_path / "emulator").mkdir()  # no package: Python prefers ours
    done = start(tmp_path, "-m", "towline", "--version")
    assert (done.returncode, done.stderr) == (0, "")
    done = start(tmp_path, "-c", "import towline; towline.targets()")
    assert (done.returncode, done.stderr) == (0, "")
