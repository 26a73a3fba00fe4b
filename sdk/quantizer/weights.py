"""What can be done about weights and biases before they are quantised; each is kept only where it pays.

* `scales`: each channel's scale by the least mean square error of its weights, not by the largest of them.
* `equalize`: channels between two products are scaled so that they fill one range of activations evenly.
* `round_weights`: each weight is rounded up or down so that its layer's output, not the weight, is nearest.
* `correct_biases`: the mean that quantisation shifts in each channel is taken off the bias.

What learns from samples does so without those that decide (`choose.held_folds`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sdk.ort import onnxruntime_errors, session, with_outputs
from sdk.quantizer.products import Product, constants, products, replaced
from sdk.quantizer.static import SMALLEST_CHANNEL, Ranges
from sdk.quantizer.trial import Trial
from sdk.quantizer.work import Work

Step = Callable[[int, int], None]

HIGHEST = 127
FRACTIONS = np.linspace(0.7, 1.0, 61)
"""Of a channel's largest weight, tried as the largest that is represented."""

SAMPLES = 64
"""Samples that are learnt from, at most."""

BIAS_SAMPLES = 12
"""Of these for biases, for which the network is run once a layer."""

LARGEST = 1024
"""Weights per output channel up to which rounding is optimised: its work is their square."""

POSITIONS = 512
"""Places of a feature map that rounding learns from, for each sample."""

SWEEPS = 4


def scales(work: Work) -> Work:
    """Largest represented magnitudes by the least mean square error."""
    arrays = constants(work.prepared)
    peaks = {
        product.weight: _best_peaks(product.rows(arrays[product.weight]))
        for product in _quantized(work)
        if product.node.op_type == "Conv"
    }
    return work.variant(peaks={**work.peaks, **peaks})


def _best_peaks(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    peak = np.abs(rows).max(axis=1)
    best, error = peak.astype(np.float32), np.full(len(rows), np.inf)
    for fraction in FRACTIONS[::-1]:
        step = np.maximum(peak * fraction, 1e-30)[:, None] / HIGHEST
        quantized = np.clip(np.rint(rows / step), -HIGHEST, HIGHEST) * step
        found = ((quantized - rows) ** 2).sum(axis=1)
        better = found < error * (1 - 1e-6)
        best[better], error[better] = (peak * fraction)[better], found[better]
    return np.asarray(best, np.float32)


def equalize(work: Work, samples: Sequence[int]) -> Work:
    """Scale channels between two products by the root of activation peak over weight peak.

    Args:
        work: the network.
        samples: to learn from.
    """
    arrays = dict(constants(work.prepared))
    pairs = _pairs(work)
    if not pairs:
        return work
    with onnxruntime_errors("run the model", work.where):
        runner = session(with_outputs(work.prepared, [name for _, name, _ in pairs]))
        peaks: list[NDArray[np.float32]] = []
        for index in samples[:SAMPLES]:
            values = runner.run([name for _, name, _ in pairs], work.data.samples[index])
            new = [
                np.abs(np.moveaxis(value, first.channel_axis, 0)).reshape(value.shape[first.channel_axis], -1)
                for value, (first, _, _) in zip(values, pairs, strict=True)
            ]
            found = [value.max(axis=1) for value in new]
            peaks = found if not peaks else [np.maximum(a, b) for a, b in zip(peaks, found, strict=True)]
    changed: dict[str, NDArray[Any]] = {}
    for (first, _, second), peak in zip(pairs, peaks, strict=True):
        reader = changed.get(second.weight, arrays[second.weight])
        inputs = _input_rows(second, reader)
        strength = np.abs(inputs).max(axis=1)
        usable = (peak > 1e-6) & (strength > 1e-6)
        factor = np.where(usable, np.sqrt(peak / np.maximum(strength, 1e-6)), 1.0)
        factor = np.where(usable, np.clip(factor / np.exp(np.log(factor[usable]).mean()), 0.1, 10), 1.0)
        rows = first.rows(changed.get(first.weight, arrays[first.weight])) / factor[:, None]
        changed[first.weight] = first.from_rows(rows, arrays[first.weight].shape).astype(np.float32)
        if first.bias:
            changed[first.bias] = changed.get(first.bias, arrays[first.bias]) / factor
        changed[second.weight] = _scaled_inputs(second, reader, factor)
    return work.variant(prepared=replaced(work.prepared, changed))


def _pairs(work: Work) -> list[tuple[Product, str, Product]]:
    """Products with nothing but a Relu between them, and the tensor that is between."""
    found = products(work.prepared)
    by_input: dict[str, list[Product]] = {}
    for product in found:
        by_input.setdefault(product.node.input[0], []).append(product)
    readers: dict[str, list[str]] = {}
    outputs = {value.name for value in work.prepared.graph.output}
    relus = {}
    for node in work.prepared.graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node.op_type)
        if node.op_type == "Relu":
            relus[node.input[0]] = node.output[0]
    result = []
    for first in found:
        name = first.node.output[0]
        if readers.get(name) == ["Relu"] and name not in outputs:
            name = relus[name]
        seconds = by_input.get(name, [])
        kinds = {first.node.op_type} | {second.node.op_type for second in seconds}
        if len(seconds) == len(readers.get(name, [])) == 1 and name not in outputs and len(kinds) == 1:
            result.append((first, name, seconds[0]))
    return [pair for pair in result if pair[0].node.op_type in ("Conv", "Gemm")]


def _input_rows(product: Product, array: NDArray[np.float32]) -> NDArray[np.float32]:
    """Weights as [input channels, rest]."""
    if product.node.op_type != "Conv":
        return np.moveaxis(array, 1 - product.axis, 0)
    groups = product.attribute("group", 1)
    parts = array.reshape(groups, len(array) // groups, *array.shape[1:])
    moved = np.moveaxis(parts, 2, 1)  # [groups, inputs of one, outputs of one, ...]
    return moved.reshape(groups * array.shape[1], -1)


def _scaled_inputs(
    product: Product, array: NDArray[np.float32], factor: NDArray[np.float64]
) -> NDArray[np.float32]:
    """Weights with each input channel multiplied."""
    if product.node.op_type != "Conv":
        return (array * np.expand_dims(factor, product.axis)).astype(np.float32)
    groups = product.attribute("group", 1)
    parts = array.reshape(groups, len(array) // groups, *array.shape[1:])
    scale = factor.reshape(groups, 1, array.shape[1], *[1] * (array.ndim - 2))
    return (parts * scale).reshape(array.shape).astype(np.float32)


def round_weights(work: Work, samples: Sequence[int], progress: Step) -> Work:
    """Round weights up or down by what that does to the layer's output on the samples.

    The error of a row of weights is d' G d, of what rounding adds to each weight (d) and the correlations of
    the layer's inputs (G). Starting at the nearest integers, one weight after the other takes the other
    neighbour where that lowers it.
    """
    arrays = constants(work.prepared)
    chosen = [
        product
        for product in _quantized(work)
        if product.node.op_type == "Conv"
        and np.prod(arrays[product.weight].shape[1:]) <= LARGEST
        and product.attribute("auto_pad", b"NOTSET") == b"NOTSET"
    ]
    names = [product.node.input[0] for product in chosen]
    computed = {name for node in work.prepared.graph.node for name in node.output}
    changed: dict[str, NDArray[np.float32]] = {}
    peaks: dict[str, NDArray[np.float32]] = {}
    with onnxruntime_errors("run the model", work.where):
        runner = session(with_outputs(work.prepared, [name for name in names if name in computed]))
    for done, product in enumerate(chosen):
        progress(done, len(chosen))
        weight = arrays[product.weight]
        groups = product.attribute("group", 1)
        places = 0
        grams = np.zeros((groups, weight[0].size, weight[0].size))
        for index in samples[:SAMPLES]:
            name, feeds = product.node.input[0], work.data.samples[index]
            with onnxruntime_errors("run the model", work.where):
                value = feeds[name] if name in feeds else runner.run([name], feeds)[0]
            patches = _patches(product, value, weight.shape)
            places += patches.shape[-1]
            grams += np.einsum("gkp,glp->gkl", patches, patches, optimize=True)
        # Fewer places than weights leave correlations that only these samples have.
        trust = places / (places + weight[0].size)
        own = np.einsum("gkk->gk", grams)
        grams = trust * grams + (1 - trust) * own[:, :, None] * np.eye(weight[0].size)
        rows = product.rows(weight)
        peak = np.maximum(work.peaks.get(product.weight, np.abs(rows).max(axis=1)), 0)
        peak = np.maximum(peak, np.float32(peak.max() * SMALLEST_CHANNEL))
        step = np.maximum(peak, 1e-30)[:, None].astype(np.float64) / HIGHEST
        each = len(rows) // groups
        parts = [
            _rounded(rows[group * each : (group + 1) * each] / step[group * each : (group + 1) * each], gram)
            for group, gram in enumerate(grams)
        ]
        changed[product.weight] = (np.concatenate(parts) * step).reshape(weight.shape).astype(np.float32)
        peaks[product.weight] = peak.astype(np.float32)
    progress(len(chosen), len(chosen))
    return work.variant(prepared=replaced(work.prepared, changed), peaks={**work.peaks, **peaks})


def _rounded(rows: NDArray[np.float64], gram: NDArray[np.float64]) -> NDArray[np.float64]:
    """Integers near `rows` [outputs, inputs], by the correlations of the inputs."""
    low, high = np.floor(rows), np.ceil(rows)
    result = np.clip(np.rint(rows), -HIGHEST, HIGHEST)
    gradient = (result - rows) @ gram
    for _ in range(SWEEPS):
        flips = 0
        for index in range(rows.shape[1]):
            other = np.where(result[:, index] == low[:, index], high[:, index], low[:, index])
            change = np.clip(other, -HIGHEST, HIGHEST) - result[:, index]
            gain = change * (2 * gradient[:, index] + change * gram[index, index])
            change = np.where(gain < 0, change, 0.0)
            moved = np.flatnonzero(change)
            if len(moved):
                result[moved, index] += change[moved]
                gradient[moved] += change[moved, None] * gram[index]
                flips += len(moved)
        if not flips:
            break
    return result


def _patches(product: Product, value: NDArray[np.float32], shape: tuple[int, ...]) -> NDArray[np.float32]:
    """What each output of a convolution is made of: [groups, inputs of one, places]."""
    spatial = len(shape) - 2
    kernel = shape[2:]
    strides = product.attribute("strides", [1] * spatial)
    dilations = product.attribute("dilations", [1] * spatial)
    pads = product.attribute("pads", [0] * (2 * spatial))
    padded = np.pad(value, [(0, 0), (0, 0), *zip(pads[:spatial], pads[spatial:], strict=True)])
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    axes = tuple(range(2, 2 + spatial))
    windows = np.lib.stride_tricks.sliding_window_view(padded, reach, axis=axes)
    windows = windows[(slice(None), slice(None), *(slice(None, None, s) for s in strides))]
    every: list[Any] = [Ellipsis, *(slice(None, None, d) for d in dilations)]
    windows = windows[tuple(every)]
    places = int(np.prod(windows.shape[2 : 2 + spatial])) * windows.shape[0]
    chosen = np.linspace(0, places - 1, min(places, POSITIONS)).astype(int)
    index = np.unravel_index(chosen, (windows.shape[0], *windows.shape[2 : 2 + spatial]))
    moved = np.moveaxis(windows, 1, 0)[:, *index].reshape(windows.shape[1], len(chosen), -1)
    groups = product.attribute("group", 1)
    channels, count, size = moved.shape
    parts = moved.reshape(groups, channels // groups, count, size)
    patches: NDArray[np.float32] = np.moveaxis(parts, 2, 3).reshape(groups, -1, count)
    return patches


def correct_biases(work: Work, ranges: Ranges, samples: Sequence[int], progress: Step) -> Work:
    """Take off each bias what quantisation adds to the mean of its channel, layer by layer.

    A mean over few samples is uncertain itself; it is taken off less where its standard error is as large.
    """
    chosen = [product for product in _quantized(work) if product.bias]
    samples = samples[:BIAS_SAMPLES]
    names = [product.node.output[0] for product in chosen]
    if not chosen:
        return work
    with onnxruntime_errors("run the model", work.where):
        runner = session(with_outputs(work.prepared, names))
        expected = [
            [_means(*pair) for pair in zip(chosen, runner.run(names, work.data.samples[index]), strict=True)]
            for index in samples
        ]
    layout = work.layout  # biases have no part in it
    for at, product in enumerate(chosen):
        progress(at, len(chosen))
        trial = Trial(
            work.prepared,
            layout,
            work.data.samples,
            work.expected,
            activation=work.form.activation,
            watch=[names[at]],
        )
        shifts = np.stack(
            [
                _means(product, trial.watched(ranges, index)[0]) - values[at]
                for index, values in zip(samples, expected, strict=True)
            ]
        )
        mean, spread = shifts.mean(axis=0), shifts.var(axis=0) / max(len(samples) - 1, 1)
        certain = np.maximum(1 - spread / np.maximum(mean**2, 1e-30), 0)
        bias = constants(work.prepared)[product.bias] - mean * certain
        work = work.variant(prepared=replaced(work.prepared, {product.bias: bias.astype(np.float32)}))
    progress(len(chosen), len(chosen))
    return work


def _means(product: Product, value: NDArray[np.float32]) -> NDArray[np.float64]:
    """The mean of each channel of a product's result."""
    rows = np.moveaxis(value, product.channel_axis, 0).reshape(value.shape[product.channel_axis], -1)
    return np.asarray(rows.mean(axis=1, dtype=np.float64))


def _quantized(work: Work) -> list[Product]:
    """The products whose weights are quantised."""
    known: Mapping[str, object] = work.layout.constants
    return [
        product
        for product in products(work.prepared)
        if product.weight in known and product.node.name not in work.keep_float
    ]
