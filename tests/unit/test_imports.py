"""Who may import whom, and what the core may need: numpy and pyusb, and nothing else."""

import pkgutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import usbgpu
from sdk import artifact
from sdk.passes import split
from sdk.target import Options
from tests.reference_target import ReferenceTarget, install, small_network

ROOT = Path(__file__).parents[2]

CORE = [
    *(
        "sdk.arithmetic",
        "sdk.artifact",
        "sdk.check",
        "sdk.child",
        "sdk.errors",
        "sdk.files",
        "sdk.graph",
        "sdk.graph_json",
    ),
    *(
        "sdk.passes",
        "sdk.preprocess",
        "sdk.reference",
        "sdk.report",
        "sdk.session",
        "sdk.shapes",
        "sdk.target",
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


def test_session_runs_with_numpy_alone(tmp_path):
    install(tmp_path)
    graph = small_network()
    program = ReferenceTarget().compile(split(graph).body, Options())
    artifact.save(artifact.Artifact(program, graph, "q31"), tmp_path / "net.tow")
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
