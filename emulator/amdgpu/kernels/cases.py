"""What each kernel is launched with, and what must come out: references in numpy, from the definitions.

Integer kernels are exact. For floating point the reference has a bound, in units in the last place
(ULP) of a scale: of the result itself where nothing cancels, of the sum of the absolute values of the
products in a matrix product, so that any order of additions can be judged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sdk.errors import UsageError

Array = np.ndarray[Any, np.dtype[Any]]
Arguments = Mapping[str, Array | int | float]


@dataclass(frozen=True, slots=True)
class Expected:
    """What a buffer must hold afterwards.

    Attributes:
        values: exact, or in float64.
        bound: ULP that an element may be off; 0 for bit-exact.
        scale: whose ULP; that of `values` if None.
    """

    values: Array
    bound: float = 0
    scale: Array | None = None

    def ulps(self, actual: Array) -> Array:
        """How far each element is off: in ULP, or 0 or infinity if it must be exact."""
        if not self.bound:
            return np.asarray(np.where(actual == self.values, 0.0, np.inf))
        scale = np.abs(self.values if self.scale is None else self.scale).astype(actual.dtype)
        error: Array = np.abs(actual.astype(np.float64) - self.values) / np.spacing(scale).astype(np.float64)
        return np.where(np.isnan(error), np.inf, error)

    def mismatches(self, actual: Array) -> int:
        """Elements that are off by more than the bound."""
        return int(np.count_nonzero(self.ulps(actual) > self.bound))


@dataclass(frozen=True, slots=True)
class Case:
    """A launch.

    Attributes:
        kernel: its name, which is also the case's.
        source: file of this folder that it is in, without `.cl`.
        groups: workgroups in x, y, z.
        threads: work-items of a workgroup in x, y, z.
        arguments: by name, in order: buffers as arrays, int and float by value.
        expected: by argument: what is in those buffers afterwards. All others stay as they are.
    """

    kernel: str
    source: str
    groups: tuple[int, int, int]
    threads: tuple[int, int, int]
    arguments: Arguments
    expected: Mapping[str, Expected] = field(repr=False)

    @property
    def buffers(self) -> dict[str, Array]:
        """The arguments that are buffers."""
        return {name: value for name, value in self.arguments.items() if isinstance(value, np.ndarray)}

    @property
    def waves(self) -> int:
        """Waves of 32 work-items."""
        return int(np.prod(self.groups)) * -(-int(np.prod(self.threads)) // 32)

    def mismatches(self, results: Mapping[str, Array]) -> int:
        """Elements of all buffers that are not as expected; a buffer that should not change counts too."""
        count = 0
        for name, before in self.buffers.items():
            expected = self.expected.get(name, Expected(before.view(f"u{before.itemsize}")))
            actual = results[name].view(before.dtype if name in self.expected else f"u{before.itemsize}")
            count += expected.mismatches(actual)
        return count


def poison(shape: int | tuple[int, ...], dtype: Any) -> Array:
    """A buffer for results, filled with bytes that no result contains."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    filled: Array = np.full(size, 0xA5, np.uint8).view(dtype).reshape(shape)
    return filled


def _requantised(accumulators: Array, scale: Array | np.float32, zero: int) -> Array:
    scaled = np.rint(accumulators.astype(np.float32) * scale).astype(np.int32)
    result: Array = np.clip(scaled + zero, 0, 255).astype(np.uint8)
    return result


def gemm_dot4(m: int = 64, n: int = 128, k: int = 96, seed: int = 1) -> Case:
    """u8[m, k] times s8[n, k], s32[m, n]; m and n multiples of 64, k of 32."""
    return _gemm("gemm_dot4", 64, (256, 1, 1), m, n, k, seed)


def gemm_wmma(m: int = 32, n: int = 48, k: int = 64, seed: int = 2) -> Case:
    """u8[m, k] times s8[n, k], s32[m, n]; multiples of 16."""
    return _gemm("gemm_wmma", 16, (32, 1, 1), m, n, k, seed)


def _gemm(name: str, tile: int, threads: tuple[int, int, int], m: int, n: int, k: int, seed: int) -> Case:
    random = np.random.default_rng(seed)
    a = random.integers(0, 256, (m, k), np.uint8)
    b = random.integers(-128, 128, (n, k), np.int8)
    a[0], b[0] = 255, -128  # the largest sum there is
    product = (a.astype(np.int64) @ b.astype(np.int64).T).astype(np.int32)
    arguments: Arguments = {"a": a, "b": b, "c": poison((m, n), np.int32), "n": n, "k": k}
    return Case(name, "gemm", (n // tile, m // tile, 1), threads, arguments, {"c": Expected(product)})


def pointwise(pixels: int = 37, channels_in: int = 24, channels_out: int = 20, seed: int = 3) -> Case:
    """u8[pixels, channels_in] to u8[pixels, channels_out]; channels multiples of 4."""
    random = np.random.default_rng(seed)
    data = random.integers(0, 256, (pixels, channels_in), np.uint8)
    weights = random.integers(-128, 128, (channels_out, channels_in), np.int8)
    bias = random.integers(-20000, 20000, channels_out, np.int32)
    scale = random.uniform(1e-3, 6e-3, channels_out).astype(np.float32)
    sums = data.astype(np.int32) @ weights.astype(np.int32).T + bias
    arguments: Arguments = {
        "input": data, "weights": weights, "bias": bias, "scale": scale,
        "output": poison((pixels, channels_out), np.uint8), "pixels": pixels, "from": channels_in,
        "to": channels_out, "zero": 113,
    }  # fmt: skip
    groups = (-(-pixels * channels_out // 4 // 64), 1, 1)
    expected = Expected(_requantised(sums, scale, 113))
    return Case("pointwise", "layers", groups, (64, 1, 1), arguments, {"output": expected})


def depthwise(height: int = 7, width: int = 9, channels: int = 12, seed: int = 4) -> Case:
    """u8[height, width, channels] to the same; channels a multiple of 4."""
    random = np.random.default_rng(seed)
    data = random.integers(0, 256, (height, width, channels), np.uint8)
    weights = random.integers(-128, 128, (9, channels), np.int8)
    bias = random.integers(-5000, 5000, channels, np.int32)
    scale = random.uniform(1e-3, 6e-3, channels).astype(np.float32)
    zero_in, zero_out = 117, 9
    padded = np.full((height + 2, width + 2, channels), zero_in, np.int32)
    padded[1:-1, 1:-1] = data
    sums = np.broadcast_to(bias, data.shape).copy()
    for tap in range(9):
        y, x = divmod(tap, 3)
        sums += (padded[y : y + height, x : x + width] - zero_in) * weights[tap].astype(np.int32)
    arguments: Arguments = {
        "input": data, "weights": weights, "bias": bias, "scale": scale,
        "output": poison(data.shape, np.uint8),
        "height": height, "width": width, "channels": channels, "zero_in": zero_in, "zero_out": zero_out,
    }  # fmt: skip
    expected = Expected(_requantised(sums, scale, zero_out))
    groups = (-(-width * channels // 4 // 64), height, 1)
    return Case("depthwise", "layers", groups, (64, 1, 1), arguments, {"output": expected})


def average_pool(pixels: int = 49, channels: int = 100, seed: int = 5) -> Case:
    """u8[pixels, channels] to u8[channels]."""
    random = np.random.default_rng(seed)
    data = random.integers(0, 256, (pixels, channels), np.uint8)
    data[:, 0] = 255
    scale, zero_in, zero_out = np.float32(1.7 / pixels), 100, 3
    sums = data.astype(np.int32).sum(axis=0) - pixels * zero_in
    arguments: Arguments = {
        "input": data, "output": poison(channels, np.uint8), "pixels": pixels, "channels": channels,
        "zero_in": zero_in, "scale": float(scale), "zero_out": zero_out,
    }  # fmt: skip
    expected = Expected(_requantised(sums, scale, zero_out))
    groups = (-(-channels // 64), 1, 1)
    return Case("average_pool", "layers", groups, (64, 1, 1), arguments, {"output": expected})


def add(elements: int = 404, seed: int = 6) -> Case:
    """u8[elements] and u8[elements] to u8[elements]; a multiple of 4."""
    random = np.random.default_rng(seed)
    a, b = (random.integers(0, 256, elements, np.uint8) for _ in range(2))
    scale_a, scale_b, zero_a, zero_b, zero_out = np.float32(0.71), np.float32(0.5), 120, 131, 128
    left = (a.astype(np.int32) - zero_a).astype(np.float32) * scale_a
    right = (b.astype(np.int32) - zero_b).astype(np.float32) * scale_b
    result = np.clip(np.rint(left + right).astype(np.int32) + zero_out, 0, 255).astype(np.uint8)
    arguments: Arguments = {
        "a": a, "b": b, "output": poison(elements, np.uint8), "dwords": elements // 4, "zero_a": zero_a,
        "scale_a": float(scale_a), "zero_b": zero_b, "scale_b": float(scale_b), "zero_out": zero_out,
    }  # fmt: skip
    groups = (-(-elements // 4 // 64), 1, 1)
    return Case("add", "layers", groups, (64, 1, 1), arguments, {"output": Expected(result)})


SOFTMAX_BOUND = 32
"""The argument of exp2, 23.1 at most, is off by 2.5 * 2**-20 (difference, constant, product): 27 ULP of the
result. v_exp_f32, the sum and the division add a few."""


def softmax(rows: int = 5, columns: int = 200, seed: int = 7) -> Case:
    """f32[rows, columns], over columns."""
    data = np.random.default_rng(seed).uniform(-8, 8, (rows, columns)).astype(np.float32)
    exact = np.exp(data.astype(np.float64) - data.max(axis=1, keepdims=True))
    exact /= exact.sum(axis=1, keepdims=True)
    arguments: Arguments = {"input": data, "output": poison(data.shape, np.float32), "columns": columns}
    expected = {"output": Expected(exact, SOFTMAX_BOUND)}
    return Case("softmax", "real", (rows, 1, 1), (64, 1, 1), arguments, expected)


def matmul_f32(m: int = 32, n: int = 48, k: int = 64, seed: int = 8) -> Case:
    """f32[m, k] times f32[k, n], f32[m, n]; multiples of 16. Each of k additions rounds once: k/2 ULP."""
    random = np.random.default_rng(seed)
    a, b = random.normal(size=(m, k)).astype(np.float32), random.normal(size=(k, n)).astype(np.float32)
    arguments: Arguments = {"a": a, "b": b, "c": poison((m, n), np.float32), "n": n, "k": k}
    return _matmul("matmul_f32", (16, 16, 1), arguments, a, b, k / 2)


def matmul_f16(m: int = 32, n: int = 16, k: int = 64, seed: int = 9) -> Case:
    """f16[m, k] times f16[n, k], f16[m, n]; multiples of 16. Each of k/2 + 1 additions rounds once."""
    random = np.random.default_rng(seed)
    a, b = (random.normal(size=(rows, k)).astype(np.float16) for rows in (m, n))
    arguments: Arguments = {"a": a, "b": b, "c": poison((m, n), np.float16), "n": n, "k": k}
    return _matmul("matmul_f16", (16, 16, 1), arguments, a, b.T, (k / 2 + 1) / 2)


def matmul_f16_wmma(m: int = 32, n: int = 48, k: int = 64, seed: int = 10) -> Case:
    """f16[m, k] times f16[n, k], f32[m, n]; multiples of 16. The order of additions within the matrix
    instruction is not published (guess): k/2 ULP hold for any.
    """
    random = np.random.default_rng(seed)
    a, b = (random.normal(size=(rows, k)).astype(np.float16) for rows in (m, n))
    arguments: Arguments = {"a": a, "b": b, "c": poison((m, n), np.float32), "n": n, "k": k}
    return _matmul("matmul_f16_wmma", (32, 1, 1), arguments, a, b.T, k / 2)


def _matmul(
    name: str,
    threads: tuple[int, int, int],
    arguments: Arguments,
    a: Array,
    b: Array,
    bound: float,
) -> Case:
    left, right = a.astype(np.float64), b.astype(np.float64)
    expected = Expected(left @ right, bound, np.abs(left) @ np.abs(right))
    groups = (b.shape[1] // 16, a.shape[0] // 16, 1)
    return Case(name, "real", groups, threads, arguments, {"c": expected})


def scan(blocks: int = 3, seed: int = 11) -> Case:
    """u32[256 * blocks], each block by itself."""
    data = np.random.default_rng(seed).integers(0, 1 << 32, (blocks, 256), np.uint32)
    sums = np.cumsum(data.astype(np.uint64), axis=1).astype(np.uint32)
    arguments: Arguments = {"input": data, "output": poison(data.shape, np.uint32)}
    return Case("scan", "integer", (blocks, 1, 1), (256, 1, 1), arguments, {"output": Expected(sums)})


def histogram(size: int = 5000, seed: int = 12) -> Case:
    """u8[size], a multiple of 4, into u32[256]."""
    data = np.random.default_rng(seed).normal(128, 20, size).clip(0, 255).astype(np.uint8)
    counts = np.bincount(data, minlength=256).astype(np.uint32)
    arguments: Arguments = {"data": data, "bins": np.zeros(256, np.uint32), "dwords": size // 4}
    groups = (-(-size // 4 // 512), 1, 1)
    return Case("histogram", "integer", groups, (128, 1, 1), arguments, {"bins": Expected(counts)})


def sort(groups: int = 2, seed: int = 14) -> Case:
    """s32[64 * groups, 24], each row by itself, in scratch memory."""
    data = np.random.default_rng(seed).integers(-(1 << 31), 1 << 31, (64 * groups, 24), np.int32)
    data[0] = -1
    arguments: Arguments = {"input": data, "output": poison(data.shape, np.int32)}
    expected = {"output": Expected(np.sort(data, axis=1))}
    return Case("sort", "integer", (groups, 1, 1), (64, 1, 1), arguments, expected)


def alu(items: int = 128, rounds: int = 50, seed: int = 13) -> Case:
    """u32[items] in place; a multiple of 64."""
    values = np.random.default_rng(seed).integers(0, 1 << 32, items, np.uint32)
    a, b = values.copy(), ~values
    for _ in range(rounds):
        a = a * np.uint32(1664525) + np.uint32(1013904223)
        b = (b << np.uint32(5)) + (b ^ a >> np.uint32(7))
        a = a ^ a << np.uint32(13)
        b = b + (a & np.uint32(0x0F0F0F0F))
    arguments: Arguments = {"values": values, "rounds": rounds}
    return Case("alu", "integer", (items // 64, 1, 1), (64, 1, 1), arguments, {"values": Expected(a ^ b)})


CASES: Mapping[str, Callable[..., Case]] = {
    make.__name__: make
    for make in (
        gemm_dot4, gemm_wmma, pointwise, depthwise, average_pool, add, softmax, matmul_f32, matmul_f16,
        matmul_f16_wmma, scan, histogram, sort, alu,
    )
}  # fmt: skip
"""By kernel: what makes its case; sizes can be given."""


def case(kernel: str, **sizes: int) -> Case:
    """A launch of a kernel. Raises UsageError if there is no kernel of that name."""
    if kernel not in CASES:
        raise UsageError(f"there is no kernel {kernel!r}", hint=f"kernels: {', '.join(CASES)}")
    return CASES[kernel](**sizes)
