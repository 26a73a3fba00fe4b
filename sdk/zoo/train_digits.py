"""Trains the digits model and writes `sdk/zoo/data`: python -m sdk.zoo.train_digits

Needs `pip install 'towline[compile,train]'` and a few minutes on one core. The pictures and the split are
described in `sdk.zoo.digits`. Of the training part a tenth is kept back for validation, which is printed
while training; no epoch or setting is chosen by the held-out part, which is only measured at the end.
Seeded and single-threaded: the same torch on the same kind of CPU gives the same file.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sdk import files
from sdk.extras import require
from sdk.zoo.digits import ARCHITECTURE, CLASSES, DATA, Digits, digits
from sdk.zoo.mobilenet import Weights, build

SPLIT_SEED, SEED = 1797, 0
CALIBRATION_PER_CLASS = 15
BATCH, LEARNING_RATE, WEIGHT_DECAY, LABEL_SMOOTHING = 64, 4e-3, 1e-2, 0.05


def split(labels: NDArray[np.int64], part: float, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Indices of the two parts, the second holding `part` of every class."""
    generator = np.random.default_rng(seed)
    second: list[NDArray[np.int64]] = []
    for label in range(CLASSES):
        members = generator.permutation(np.flatnonzero(labels == label))
        second.append(members[: round(part * len(members))])
    kept_back = np.sort(np.concatenate(second))
    return np.setdiff1d(np.arange(len(labels)), kept_back), kept_back


class Trainer:
    """The architecture in torch: one Conv + BatchNorm (+ ReLU6) unit per convolution, and a classifier."""

    def __init__(self, epochs: int) -> None:
        self.torch = torch = require("torch", extra="train")
        torch.set_num_threads(1)
        torch.manual_seed(SEED)
        torch.use_deterministic_algorithms(True)
        self.units = torch.nn.ModuleDict()
        for layer in ARCHITECTURE.convolutions():
            parts = [
                torch.nn.Conv2d(
                    layer.inputs,
                    layer.outputs,
                    layer.kernel,
                    stride=layer.stride,
                    padding=layer.kernel // 2,
                    groups=layer.groups,
                    bias=False,
                ),
                torch.nn.BatchNorm2d(layer.outputs),
            ]
            if layer.relu6:
                parts.append(torch.nn.ReLU6())
            self.units[layer.name] = torch.nn.Sequential(*parts)
        self.units["classifier"] = torch.nn.Linear(ARCHITECTURE.features, ARCHITECTURE.classes)
        self.epochs = epochs

    def forward(self, value: Any) -> Any:
        for block in ARCHITECTURE.blocks:
            entry = value
            for convolution in block.convolutions:
                value = self.units[convolution.name](value)
            if block.residual:
                value = value + entry
        return self.units["classifier"](value.mean(dim=(2, 3)))

    def augment(self, inputs: Any) -> Any:
        """Turn, scale and shift each picture a little."""
        torch, count = self.torch, len(inputs)
        angle = (torch.rand(count) * 2 - 1) * math.radians(12)
        scale = 1 + (torch.rand(count) * 2 - 1) * 0.12
        shift = (torch.rand(count, 2) * 2 - 1) * 0.12
        cosine, sine = torch.cos(angle) * scale, torch.sin(angle) * scale
        top = torch.stack([cosine, -sine, shift[:, 0]], dim=1)
        bottom = torch.stack([sine, cosine, shift[:, 1]], dim=1)
        grid = torch.nn.functional.affine_grid(
            torch.stack([top, bottom], dim=1), inputs.shape, align_corners=False
        )
        return torch.nn.functional.grid_sample(inputs, grid, align_corners=False)

    def train(
        self, inputs: Any, labels: Any, validation_inputs: Any, validation_labels: Any, *, log: bool = True
    ) -> None:
        torch = self.torch
        steps = math.ceil(len(inputs) / BATCH)
        optimizer = torch.optim.AdamW(self.units.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, LEARNING_RATE, total_steps=steps * self.epochs
        )
        for epoch in range(self.epochs):
            self.units.train()
            total = 0.0
            for chosen in torch.randperm(len(inputs)).split(BATCH):
                optimizer.zero_grad()
                loss = torch.nn.functional.cross_entropy(
                    self.forward(self.augment(inputs[chosen])),
                    labels[chosen],
                    label_smoothing=LABEL_SMOOTHING,
                )
                loss.backward()
                optimizer.step()
                schedule.step()
                total += loss.item()
            if log and (epoch % 5 == 4 or epoch == self.epochs - 1):
                right = self.accuracy(validation_inputs, validation_labels)
                print(f"epoch {epoch + 1}: loss {total / steps:.3f}, validation {right:.2%}", flush=True)

    def accuracy(self, inputs: Any, labels: Any) -> float:
        self.units.eval()
        with self.torch.no_grad():
            return float((self.forward(inputs).argmax(dim=1) == labels).double().mean())

    def folded(self) -> Weights:
        """The weights with batch normalisation folded in, named as the ONNX builder expects."""
        weights: dict[str, NDArray[np.float32]] = {}
        for layer in ARCHITECTURE.convolutions():
            convolution, norm = self.units[layer.name][0], self.units[layer.name][1]
            gain = (norm.weight / (norm.running_var + norm.eps).sqrt()).detach().double()
            weight = convolution.weight.detach().double() * gain[:, None, None, None]
            bias = norm.bias.detach().double() - norm.running_mean.double() * gain
            weights[f"{layer.name}.weight"] = weight.numpy().astype(np.float32)
            weights[f"{layer.name}.bias"] = bias.numpy().astype(np.float32)
        classifier = self.units["classifier"]
        weights["classifier.weight"] = classifier.weight.detach().numpy()
        weights["classifier.bias"] = classifier.bias.detach().numpy()
        return weights


def accuracy_of(model: Path, inputs: NDArray[np.float32], labels: NDArray[np.int64]) -> float:
    """Top-1 accuracy of an ONNX file under onnxruntime."""
    session = require("onnxruntime").InferenceSession(str(model), providers=["CPUExecutionProvider"])
    answers = [int(session.run(None, {"input": inputs[i : i + 1]})[0].argmax()) for i in range(len(inputs))]
    return float(np.mean(np.array(answers) == labels))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--output", type=Path, default=DATA, help="directory for the three files")
    options = parser.parse_args()

    source = require("sklearn.datasets", extra="train").load_digits()
    images = np.rint(source.images * (255 / 16)).astype(np.uint8)
    labels = source.target.astype(np.int64)
    training, held_out = split(labels, 0.25, SPLIT_SEED)
    fitted, validation = split(labels[training], 0.1, SPLIT_SEED + 1)

    trainer = Trainer(options.epochs)
    tensors = trainer.torch.from_numpy
    inputs = digits().inputs(images[training])
    targets = labels[training]
    trainer.train(
        tensors(inputs[fitted]),
        tensors(targets[fitted]),
        tensors(inputs[validation]),
        tensors(targets[validation]),
    )

    options.output.mkdir(parents=True, exist_ok=True)
    model = options.output / "digits.onnx"
    network = build(ARCHITECTURE, trainer.folded(), name="digits")
    files.write(model, network.SerializeToString(deterministic=True))
    calibration = np.concatenate(
        [training[labels[training] == label][:CALIBRATION_PER_CLASS] for label in range(CLASSES)]
    )
    for name, indices in (("digits_calibration", np.sort(calibration)), ("digits_test", held_out)):
        with files.replacing(options.output / f"{name}.npz") as file:
            np.savez_compressed(file, images=images[indices], labels=labels[indices], indices=indices)

    shipped = Digits(model, digits().preprocessing)
    score = accuracy_of(model, shipped.inputs(images[held_out]), labels[held_out])
    nbytes = model.stat().st_size
    print(f"held-out accuracy {score:.4f} on {len(held_out)} pictures, {nbytes:,} bytes")


if __name__ == "__main__":
    main()
