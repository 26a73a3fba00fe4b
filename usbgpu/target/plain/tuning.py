"""Cuts of products of floats by measurement: which of those that the cost model likes takes least time.

A product's signature is all of it but the values: extents, strides, element types, and what becomes of a sum.
"""

from __future__ import annotations

import heapq
import json
import struct
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from sdk import cache, toolchain
from sdk.errors import DeviceFailed, InvalidInput
from sdk.opencl.calls import Call, KernelSource
from sdk.opencl.product import Product
from sdk.plan import Choice, TuningPlan
from sdk.target import Candidate
from sdk.tuner import version
from sdk.tuning import Tuning
from usbgpu.amd.facts.chips import Chip
from usbgpu.seam import Buffer, Gpu, Launch
from usbgpu.target.build import FLAGS, build, headers
from usbgpu.target.calls import kernarg
from usbgpu.target.plain.products import cuts, launch, pointer_nbytes
from usbgpu.target.plan import KernelPlan, image
from usbgpu.target.session import CODE_ALIGNMENT
from usbgpu.target.tiling import Tiling

MEASURED = 8
"""Cuts of a product that are measured: those with the least time by the cost model."""
TIME = "virtual_ns"
"""What they are measured in: nanoseconds of a launch by the emulated card's cost model."""


class Cuts:
    """How the products of one network are cut.

    Args:
        chip: for which.
        tuning: what the user has measured; None for nothing.

    Attributes:
        products: that were asked for, with their nodes, in order.
        chosen: where a measurement decided.
    """

    def __init__(self, chip: Chip, tuning: Tuning | None = None) -> None:
        self._chip = chip
        self._tuning = tuning
        self.products: list[tuple[str, Product]] = []
        self.chosen: list[Choice] = []

    def of(self, name: str, product: Product) -> Tiling | None:
        """The cut that was measured best; None for that of the cost model.

        Raises:
            InvalidInput: the file names one that the product does not have.
        """
        self.products.append((name, product))
        if self._tuning is None:
            return None
        wanted = signature(product)
        choice = self._tuning.choice(wanted, kernel_hash(self._chip))
        if not choice:
            return None
        known = {_name(cut): cut for cut in cuts(self._chip, product)}
        if choice not in known:
            raise InvalidInput(
                f"the tuning file has a choice {choice!r} for {wanted}",
                where=f"node {name}",
                hint="delete the entry; `towline tune` measures again",
            )
        self.chosen.append(Choice(name, "product", choice, "user"))
        return known[choice]

    @property
    def plan(self) -> TuningPlan:
        return TuningPlan(self.chosen, len(self.products) - len(self.chosen))


def signature(product: Product) -> str:
    """Extents and types to read, and a digest of all."""
    pixels = "x".join(map(str, product.pixels))
    batches = "".join(f" batch={extent}" for extent in product.batches)
    taps = f" taps={product.taps}" if product.taps > 1 else ""
    text = f"{product.x.dtype} pixels={pixels} channels={product.channels} k={product.k}{taps}{batches}"
    return f"{text} {cache.digest([repr(product)])[:16]}"


def kernel_hash(chip: Chip) -> str:
    """A digest of what a time depends on beside the product: kernels, compiler, options, this Towline."""
    tools = [toolchain.version(tool) for tool in ("clang", "lld")]
    return cache.digest([chip.name, version(), *tools, *FLAGS, *headers().values()])


def candidates(chip: Chip, products: Sequence[Product]) -> list[Candidate]:
    """Cuts of each distinct product that has more than one; the cost model's own first."""
    uses = Counter(map(signature, products))
    kernels = kernel_hash(chip)
    found = []
    for name, product in {signature(one): one for one in products}.items():
        best = heapq.nsmallest(MEASURED, cuts(chip, product).items(), key=lambda item: item[1])
        for number, (cut, _) in enumerate(best if len(best) > 1 else ()):
            choice = _name(cut) if number else ""
            found.append(Candidate(name, choice, kernels, uses[name], _work(chip, product, cut)))
    return found


def _work(chip: Chip, product: Product, cut: Tiling) -> str:
    made, sizes = launch(chip, product, cut), pointer_nbytes(product)
    call = Call("candidate", "product", made.kernel, made.groups, [None] * len(sizes), made.words)
    arguments, _ = kernarg(call)
    kernel = {name: getattr(made.kernel, name) for name in ("source", "symbol", "threads", "defines", "text")}
    return json.dumps({"kernel": kernel, "groups": made.groups, "kernarg": arguments.hex(), "sizes": sizes})


@dataclass(frozen=True)
class Ready:
    """A candidate that is compiled.

    Attributes:
        kernel, image: its code.
        groups: workgroups in x and y.
        kernarg: arguments, with 0 for addresses.
        sizes: bytes behind each pointer; None for one that the kernel does not read.
    """

    kernel: KernelPlan
    image: bytes
    groups: tuple[int, int]
    kernarg: bytes
    sizes: Sequence[int | None]


def ready(chip: Chip, work: str) -> Ready:
    """Compile a candidate, given its `work`.

    Raises:
        ToolMissing, BuildFailed: it cannot be compiled.
    """
    document = json.loads(work)
    source = document["kernel"]
    kernel = KernelSource(**{**source, "defines": tuple(source["defines"])})
    made = build([kernel], chip.name)
    across, down = document["groups"]
    return Ready(
        made.kernels[0],
        image(made.nbytes, made.slices, made.files),
        (across, down),
        bytes.fromhex(document["kernarg"]),
        document["sizes"],
    )


def measure(gpu: Gpu, one: Ready) -> int:
    """Nanoseconds of its launch on an emulated GPU. Its tensors are zeros: no kernel branches on them.

    Raises:
        Unsupported: the card has not enough memory.
        DeviceFailed: it did not run, or the GPU counts no time.
    """
    held: list[Buffer] = []

    def put(data: bytes, alignment: int = 256) -> int:
        held.append(gpu.allocate(len(data), alignment))
        gpu.upload(held[-1], data)
        return held[-1].address

    kernel = one.kernel
    try:
        code = put(one.image, CODE_ALIGNMENT)
        addresses = [0 if size is None else put(bytes(size)) for size in one.sizes]
        kernarg = struct.pack(f"<{len(addresses)}Q", *addresses) + one.kernarg[8 * len(addresses) :]
        dispatch = Launch(
            name="candidate",
            code=code + kernel.entry,
            rsrc1=kernel.rsrc1,
            rsrc2=kernel.rsrc2,
            rsrc3=kernel.rsrc3,
            scratch=kernel.scratch,
            kernarg=kernarg.ljust(kernel.kernarg, b"\0"),
            groups=(*one.groups, 1),
            threads=(kernel.threads, 1, 1),
        )
        (counted,) = gpu.profile([dispatch])
    finally:
        for buffer in held:
            buffer.free()
    if TIME not in counted:
        raise DeviceFailed("the GPU does not count the time of a launch", hint="measure on an emulated one")
    return int(counted[TIME])


def _name(cut: Tiling) -> str:
    return f"{cut.tiles}x{cut.pixels}x{cut.split}"
