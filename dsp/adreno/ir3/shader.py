"""Building a compute shader in NIR, and compiling it with ir3.

The operations are NIR's, by NIR's names; what OpenCL C has beyond them is composed in `kernels`.
"""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from ctypes import byref, c_uint8
from ctypes import c_uint16 as u16
from ctypes import c_uint32 as u32
from ctypes import c_uint64 as u64
from dataclasses import dataclass
from types import MappingProxyType

from dsp.adreno.ir3 import mesa as m
from dsp.adreno.ir3.mesa import Info, Mesa
from sdk.errors import EnvironmentMissing


@dataclass(frozen=True)
class Value:
    """A nir_def: one to four numbers that an instruction makes."""

    at: int

    @property
    def components(self) -> int:
        return c_uint8.from_address(self.at + m.DEF_COMPONENTS).value

    @property
    def bits(self) -> int:
        """Of a component."""
        return c_uint8.from_address(self.at + m.DEF_BITS).value


Operand = Value | int | float
"""A Python int is a 32-bit constant, a float a binary32."""


@dataclass(frozen=True)
class Compiled:
    """Machine code of a shader.

    Attributes:
        info: ir3's counts.
        listing: its disassembly.
        operations: the tallies of the loops' NIR, in the order in which they begin.
    """

    info: Info
    listing: str
    operations: Sequence[Mapping[str, int]]


class Shader:
    """A compute shader being built. Everything is inserted at the end of the innermost open block.

    Args:
        mesa: the library.
        name: for Mesa's messages.
        local: work-items of a work-group in x, y, z.

    Attributes:
        has_dots: the part has dot products of four bytes; activations are then words.
    """

    def __init__(self, mesa: Mesa, name: str, local: tuple[int, int, int]) -> None:
        self._mesa, self._lib = mesa, mesa.lib
        self._builder = mesa.lib.nir_builder_init_simple_shader(m.COMPUTE, mesa.nir_options, name.encode())
        self.local = local
        self.has_dots = mesa.part in m.DOTS
        self._tallies: list[Counter[str]] = []
        self._open: list[Counter[str]] = []
        self._register_bits: dict[int, int] = {}
        for axis, size in enumerate(local):
            u16.from_address(self._builder.shader + m.SHADER_WORKGROUP + 2 * axis).value = size
        self._count(m.SHADER_NUM_UBOS, 1)

    def tally(self, name: str, count: int = 1) -> None:
        """Count operations of the innermost open loop."""
        for inner in self._open[-1:]:
            inner[name] += count

    @property
    def text(self) -> str:
        """As Mesa prints it."""
        return self._mesa.text(self._builder.shader)

    # -- values -----------------------------------------------------------------------------------------

    def constant(self, value: float, width: int = 32) -> Value:
        """A scalar of 32 bits, or a float of 16."""
        if width == 16:
            made = self._lib.nir_load_const_instr_create(self._builder.shader, 1, 16)
            u64.from_address(made + m.CONST_VALUE).value = int.from_bytes(struct.pack("<e", value), "little")
            return self._insert(made, m.CONST_DEF)
        bits = int.from_bytes(struct.pack("<f", value), "little") if isinstance(value, float) else value
        made = self._lib.nir_load_const_instr_create(self._builder.shader, 1, 32)
        u64.from_address(made + m.CONST_VALUE).value = bits & 0xFFFFFFFF
        return self._insert(made, m.CONST_DEF)

    def alu(self, op: str, *operands: Operand) -> Value:
        """An operation of up to four operands, for example "iadd"."""
        values = [self._value(operand).at for operand in operands]
        build = getattr(self._lib, f"nir_build_alu{len(values)}")
        return Value(build(byref(self._builder), self._mesa.op(op), *values))

    def vector(self, *operands: Operand) -> Value:
        return self.alu(f"vec{len(operands)}", *operands)

    def components(self, value: Value) -> list[Value]:
        """The numbers of a vector, each by itself."""
        return [self._component(value, number) for number in range(value.components)]

    def _component(self, value: Value, number: int) -> Value:
        made = self._lib.nir_alu_instr_create(self._builder.shader, self._mesa.op("mov"))
        u64.from_address(made + m.ALU_SRC + m.SRC_SSA).value = value.at
        c_uint8.from_address(made + m.ALU_SWIZZLE).value = number
        self._lib.nir_def_init(made, made + m.ALU_DEF, 1, value.bits)
        return self._insert(made, m.ALU_DEF)

    def intrinsic(
        self,
        op: str,
        *operands: Operand,
        components: int = 0,
        bits: int = 32,
        first: bool = False,
        indices: Mapping[str, int] = MappingProxyType({}),
    ) -> Value:
        """An intrinsic.

        Args:
            op: its name.
            operands: its sources.
            components: of its result, or of what it stores, where its description leaves that open.
            bits: of a component of its result.
            first: put it at the start of the shader, as declarations are.
            indices: its constant indices by name; the others are 0.

        Raises:
            TypeError: it has a different number of sources, or no such index.
        """
        values = [self._value(operand) for operand in operands]
        number, info = self._mesa.intrinsic(op)
        if info.sources != len(values):
            raise TypeError(f"{op} has {info.sources} sources, not {len(values)}")
        made = self._lib.nir_intrinsic_instr_create(self._builder.shader, number)
        if info.open_size:
            c_uint8.from_address(made + m.INTRINSIC_COMPONENTS).value = components
        for position, value in enumerate(values):
            u64.from_address(made + m.INTRINSIC_SRC + m.SRC_SIZE * position + m.SRC_SSA).value = value.at
        for name, index in indices.items():
            slot = info.index_map[self._mesa.index(name)]
            if not slot:
                raise TypeError(f"{op} has no index {name}")
            u32.from_address(made + m.INTRINSIC_INDEX + 4 * (slot - 1)).value = index
        if info.has_dest:
            self._lib.nir_def_init(made, made + m.INTRINSIC_DEF, components or info.dest_components, bits)
        return self._insert(made, m.INTRINSIC_DEF, first=first)

    # -- variables and control flow ---------------------------------------------------------------------

    def register(self, value: Operand) -> Value:
        """A variable that begins as `value`; it becomes SSA when the shader is compiled."""
        first = self._value(value)
        register = self.intrinsic(
            "decl_reg", first=True, indices={"num_components": 1, "bit_size": first.bits}
        )
        self._register_bits[register.at] = first.bits
        self.write(register, first)
        return register

    def read(self, register: Value) -> Value:
        return self.intrinsic("load_reg", register, components=1, bits=self._register_bits[register.at])

    def write(self, register: Value, value: Operand) -> None:
        self.intrinsic("store_reg", value, register, components=1, indices={"write_mask": 1})

    @contextmanager
    def loop(self) -> Iterator[None]:
        """A loop that is never unrolled, however few its iterations; `leave_if` ends it."""
        loop = self._lib.nir_push_loop(byref(self._builder))
        u32.from_address(loop + m.LOOP_CONTROL).value = m.DONT_UNROLL
        self._tallies.append(Counter())
        self._open.append(self._tallies[-1])
        yield
        self._open.pop()
        self._lib.nir_pop_loop(byref(self._builder), loop)

    @contextmanager
    def when(self, condition: Value) -> Iterator[None]:
        """The body runs if the condition holds."""
        branch = self._lib.nir_push_if(byref(self._builder), condition.at)
        yield
        self._lib.nir_pop_if(byref(self._builder), branch)

    def leave_if(self, condition: Value) -> None:
        """`break` out of the innermost loop."""
        with self.when(condition):
            self._insert(self._lib.nir_jump_instr_create(self._builder.shader, m.BREAK), 0)

    # -- memory -----------------------------------------------------------------------------------------

    def texel(self, texture: int, x: Operand, y: Operand, *, signed: bool = False) -> list[Value]:
        """read_imageui or read_imagei without a sampler, of a read-only 2-D image: four numbers."""
        return self._texel(texture, self.vector(x, y), m.DIM_2D, m.INT32 if signed else m.UINT32, 32)

    def buffer_texel(self, texture: int, x: Operand, bits: int) -> list[Value]:
        """read_imagef (32 bits) or read_imageh (16) of a read-only image1d_buffer_t: four floats."""
        kind = m.FLOAT16 if bits == 16 else m.FLOAT32
        return self._texel(texture, self._value(x), m.DIM_BUFFER, kind, bits)

    def _texel(self, texture: int, coordinates: Value, dim: int, kind: int, bits: int) -> list[Value]:
        made = self._lib.nir_tex_instr_create(self._builder.shader, 1)
        u32.from_address(made + m.TEX_DIM).value = dim
        c_uint8.from_address(made + m.TEX_TYPE).value = kind
        u32.from_address(made + m.TEX_OP).value = m.TXF
        u32.from_address(made + m.TEX_COORDS).value = coordinates.components
        u32.from_address(made + m.TEX_TEXTURE).value = texture
        source = u64.from_address(made + m.TEX_SRC).value
        u64.from_address(source + m.SRC_SSA).value = coordinates.at
        u32.from_address(source + m.TEX_SRC_TYPE).value = m.COORD
        self._lib.nir_def_init(made, made + m.TEX_DEF, 4, bits)
        self._count(m.SHADER_NUM_TEXTURES, texture + 1)
        self.tally(f"texture {texture}")
        return self.components(self._insert(made, m.TEX_DEF))

    def store_texel(self, image: int, x: Operand, y: Operand, texel: Value) -> None:
        """write_imageui of four numbers."""
        self._count(m.SHADER_NUM_IMAGES, image + 1)
        where = self.vector(x, y, 0, 0)
        kind = {"image_dim": m.DIM_2D, "access": m.NON_READABLE, "src_type": m.UINT32}
        self.intrinsic("image_store", image, where, 0, texel, 0, components=4, indices=kind)

    def argument(self, number: int, *, pointer: bool = False) -> Value:
        """A kernel's argument; ir3 keeps them in the constant file."""
        # One argument every 16 bytes of the first uniform buffer.
        where = {"align_mul": 16, "range_base": 0, "range": 1024}
        value = self.intrinsic("load_ubo", 0, 16 * number, components=2 if pointer else 1, indices=where)
        return self.alu("pack_64_2x32", value) if pointer else value

    def load_int4(self, pointer: Value, index: Operand) -> list[Value]:
        """pointer[index] of a `__global const int4 *`, `index` an int."""
        return self.components(self._load(pointer, self.alu("ishl", self.alu("i2i64", index), 4), 4, 32))

    def load_float4(self, pointer: Value, index: Operand) -> list[Value]:
        """pointer[index] of a `__global const float4 *`, `index` an int."""
        return self.load_int4(pointer, index)

    def store_numbers(self, pointer: Value, index: Operand, values: Sequence[Value], bits: int) -> None:
        """vstore4 or vstore_half4_rte of four floats to pointer + index."""
        stored = [self.alu("f2f16_rtne", value) for value in values] if bits == 16 else values
        offset = self.alu("ishl", self.alu("i2i64", index), bits // 16)
        where = self.alu("iadd", pointer, offset)
        access = {"align_mul": bits // 8, "write_mask": 15}
        self.intrinsic("store_global", self.vector(*stored), where, components=4, indices=access)

    def load_uchar(self, pointer: Value, index: Operand) -> Value:
        """pointer[index] of a `__global const uchar *`, `index` an int."""
        return self.alu("u2u32", self._load(pointer, self.alu("i2i64", index), 1, 8))

    def load_number(self, pointer: Value, index: Operand, bits: int) -> Value:
        """The element of float16 or float32 at pointer + index * bits / 8, as 32 bits."""
        self.tally("load")
        offset = self.alu("i2i64", self.alu("ishl", index, bits // 16))
        value = self._load(pointer, offset, 1, bits)
        return self.alu("f2f32", value) if bits == 16 else value

    def store_number(self, pointer: Value, index: Operand, value: Value, bits: int) -> None:
        """A float rounded to an element at pointer + index * bits / 8."""
        self.tally("store")
        where = self.alu("iadd", pointer, self.alu("i2i64", self.alu("ishl", index, bits // 16)))
        stored = self.alu("f2f16_rtne", value) if bits == 16 else value
        access = {"align_mul": bits // 8, "write_mask": 1}
        self.intrinsic("store_global", stored, where, components=1, indices=access)

    def local_memory(self, words: int) -> None:
        """Declare this many 32-bit words that a work-group shares."""
        u32.from_address(self._builder.shader + m.SHADER_SHARED_SIZE).value = 4 * words

    def load_local(self, word: Operand) -> Value:
        self.tally("load local")
        where = self.alu("ishl", word, 2)
        return self.intrinsic("load_shared", where, components=1, indices={"align_mul": 4})

    def store_local(self, word: Operand, value: Value) -> None:
        self.tally("store local")
        access = {"align_mul": 4, "write_mask": 1}
        self.intrinsic("store_shared", value, self.alu("ishl", word, 2), components=1, indices=access)

    def barrier(self) -> None:
        """The work-items of a work-group wait for each other, with their local memory."""
        self.tally("barrier")
        scopes = {"execution_scope": m.WORKGROUP, "memory_scope": m.WORKGROUP}
        self.intrinsic("barrier", indices=scopes | {"memory_semantics": m.ACQ_REL, "memory_modes": m.SHARED})

    def _load(self, pointer: Value, offset: Value, components: int, bits: int) -> Value:
        access = {"align_mul": components * bits // 8, "access": m.CAN_REORDER}
        where = self.alu("iadd", pointer, offset)
        return self.intrinsic("load_global_constant", where, components=components, bits=bits, indices=access)

    # -- the end ----------------------------------------------------------------------------------------

    def compile(self) -> Compiled:
        """Machine code for the library's part. The shader cannot be used afterwards."""
        at = self._builder.shader
        self._lib.nir_validate_shader(at, b"as built")
        self._lib.nir_lower_reg_intrinsics_to_ssa(at)
        self._lib.ir3_finalize_nir(self._mesa.compiler, byref(u32(0)), at)
        options, key = (c_uint8 * m.OPTIONS_SIZE)(), (c_uint8 * m.KEY_SIZE)()
        shader = self._lib.ir3_shader_from_nir(self._mesa.compiler, at, options, None)
        variant = self._lib.ir3_shader_create_variant(shader, key, False)
        info = Info.from_address(variant + m.VARIANT_INFO)
        code = u64.from_address(variant + m.VARIANT_BIN).value
        listing = self._mesa.disassemble(code, 4 * info.dwords)
        return Compiled(info, listing, [dict(one) for one in self._tallies])

    def _value(self, operand: Operand) -> Value:
        return operand if isinstance(operand, Value) else self.constant(operand)

    def _insert(self, made: int, result: int, *, first: bool = False) -> Value:
        insert = self._lib.nir_builder_instr_insert_at_top if first else self._lib.nir_builder_instr_insert
        insert(byref(self._builder), made)
        return Value(made + result)

    def _count(self, field: int, count: int) -> None:
        number = c_uint8.from_address(self._builder.shader + field)
        number.value = max(number.value, count)


LAYOUT = (
    r"workgroup_size: 7, 5, 3\n",
    r"num_textures: 6\n",
    r"num_ubos: 1\n",
    r"num_images: 10\n",
    r"shared_size: 4660\n",
    r"load_const \(0x8badf00d\b",
    r"32 +%\d+ = mov %\d+\.z\n",
    r"32x4 +%\d+ = \(int32\)txf %\d+ \(coord\), 5 \(texture\)\n",
    r"@image_store \(%\d+ \(0x9\), .*image_dim=2D, .*access=writeonly, .*src_type=uint32\)",
    r"32x4 +%\d+ = @load_global_constant \(%\d+\) \(access=reorderable, align_mul=16, ",
    r"@barrier \(execution_scope=WORKGROUP, memory_scope=WORKGROUP, mem_semantics=ACQ\|REL, "
    r"mem_modes=shared\)",
    r"loop \{",
    r"\bbreak\n",
)
"""What Mesa must print of the shader that `check_layout` builds."""


def check_layout(mesa: Mesa) -> None:
    """Build a shader that uses every offset, and have Mesa print it.

    Raises:
        EnvironmentMissing: it prints something else: the structs of this Mesa have another layout.
    """
    shader = Shader(mesa, "layout", (7, 5, 3))
    shader.constant(0x8BADF00D)
    texel = shader.texel(5, 11, 13, signed=True)
    shader.store_texel(9, 17, 19, shader.vector(*texel))
    shader.load_int4(shader.argument(3, pointer=True), texel[0])
    shader.local_memory(1165)
    shader.barrier()
    with shader.loop():
        shader.leave_if(shader.alu("ieq", texel[2], 0))
    for pattern in LAYOUT:
        if not re.search(pattern, shader.text):
            raise EnvironmentMissing(
                f"tinymesa {mesa.version} does not print {pattern!r} for the shader that was built with it",
                hint=m.HINT,
            )
