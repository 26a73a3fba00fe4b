"""How much memory a large network takes: compiled, saved, loaded and run on `c` by one process.

    python -m tests.large_network 3.1e9 FOLDER

makes a float model of so many bytes with external data in FOLDER, which needs 2.1 times as many bytes, and
prints seconds and memory of each step. The memory is the most that was resident (VmHWM of /proc, mapped pages
of files included) of the Python process in this step; and of the network's own process.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

WIDTHS = (4096, 4736)
LAYER = 4 * WIDTHS[0] * WIDTHS[1]


def make_model(folder: Path, nbytes: float) -> Path:
    """A chain of MatMul, Add and Tanh; its weights in one file of their own."""
    import onnx
    from onnx import TensorProto, helper

    nodes, initializers = [], []
    data = folder / "large.weights"
    count = max(1, round(nbytes / LAYER))
    biases = np.linspace(-0.1, 0.1, max(WIDTHS), dtype=np.float32)
    before = "x"
    with data.open("wb") as file:
        for layer in range(count):
            shape = WIDTHS if layer % 2 == 0 else WIDTHS[::-1]
            weight = np.random.default_rng(layer).standard_normal(shape, np.float32)
            weight *= np.linspace(0.5, 1.5, shape[1], dtype=np.float32) / np.sqrt(np.float32(shape[0]))
            tensor = TensorProto(name=f"weight{layer}", dims=shape, data_type=TensorProto.FLOAT)
            tensor.data_location = TensorProto.EXTERNAL
            place = {"location": data.name, "offset": file.tell(), "length": weight.nbytes}
            for key, value in place.items():
                tensor.external_data.add(key=key, value=str(value))
            weight.tofile(file)
            initializers.append(tensor)
            bias = biases[: shape[1]]
            initializers.append(helper.make_tensor(f"bias{layer}", TensorProto.FLOAT, bias.shape, bias))
            nodes += [
                helper.make_node("MatMul", [before, f"weight{layer}"], [f"xw{layer}"]),
                helper.make_node("Add", [f"xw{layer}", f"bias{layer}"], [f"sum{layer}"]),
                helper.make_node("Tanh", [f"sum{layer}"], [f"y{layer}"]),
            ]
            before = f"y{layer}"
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, width])
        for name, width in (("x", WIDTHS[0]), (before, WIDTHS[count % 2]))
    ]
    graph = helper.make_graph(nodes, "large", ends[:1], ends[1:], initializers)
    path = folder / "large.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


def expected(folder: Path, x: np.ndarray) -> np.ndarray:
    """The output, in float32 by numpy."""
    biases = np.linspace(-0.1, 0.1, max(WIDTHS), dtype=np.float32)
    for layer in range((folder / "large.weights").stat().st_size // LAYER):
        shape = WIDTHS if layer % 2 == 0 else WIDTHS[::-1]
        weight = np.memmap(folder / "large.weights", np.float32, "r", layer * LAYER, shape)
        x = np.tanh(x @ weight + biases[: shape[1]])
    return x


def given() -> np.ndarray:
    return np.random.default_rng(99).standard_normal((1, WIDTHS[0]), np.float32)


def peak(process: int | str = "self") -> int:
    """The most bytes that a process has had resident."""
    status = Path(f"/proc/{process}/status").read_text()
    return 1024 * int(status.partition("VmHWM:")[2].split()[0])


def journey(folder: Path) -> dict[str, object]:
    """Compile, save, load and run; memory and seconds of each step."""
    import towline
    from sdk import artifact

    steps: dict[str, dict[str, float]] = {}
    began = peak()

    def step(name, function):
        Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM
        started = time.perf_counter()
        result = function()
        steps[name] = {"seconds": time.perf_counter() - started, "bytes": peak()}
        return result

    network = step("compile", lambda: towline.compile(folder / "large.onnx", target="c"))
    step("save", lambda: artifact.save(network, folder / "large.tow"))
    del network
    network = step("load", lambda: artifact.load(folder / "large.tow"))
    session = step("open", lambda: towline.Session(network))
    with session:
        outputs = step("run", lambda: session.run({"x": given()}))
        child = peak(session.on_device._child.process.pid)
    np.save(folder / "y.npy", next(iter(outputs.values())))
    compiler = 1024 * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return {"steps": steps, "before": began, "network": child, "children": compiler}


def measure(folder: Path) -> dict[str, float]:
    """The journey in a process of its own, and its figures.

    `ratio` is the sum of the peak of the Python process and that of the network's, as part of the model's
    bytes; it bounds the sum at any time. `grown` leaves out what Python had before.
    """
    command = [sys.executable, "-m", "tests.large_network", "--journey", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    found = json.loads(done.stdout)
    y, right = np.load(folder / "y.npy"), expected(folder, given())
    nbytes = (folder / "large.weights").stat().st_size
    python = max(step["bytes"] for step in found["steps"].values())
    return found | {
        "model": nbytes,
        "file": (folder / "large.tow").stat().st_size,
        "error": float(np.abs(y - right).max()),
        "ratio": (python + found["network"]) / nbytes,
        "grown": (python - found["before"] + found["network"]) / nbytes,
    }


def main() -> None:
    if sys.argv[1] == "--journey":
        print(json.dumps(journey(Path(sys.argv[2]))))
        return
    folder = Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    make_model(folder, float(sys.argv[1]))
    found = measure(folder)
    for name, step in found.pop("steps").items():
        print(f"{name:14} {step['seconds']:8.1f} s {step['bytes'] / 1e6:10,.0f} MB")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
