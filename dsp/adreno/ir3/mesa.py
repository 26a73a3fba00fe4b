"""Mesa's NIR and ir3 (the compiler of Adreno) through PyPI's `tinymesa`: build a shader, compile it, list it.

libtinymesa.so is Mesa as one shared library with its C functions exported, without headers and without a
front end. Shaders are built with those functions. Where C code stores to a struct, this does too, at
offsets that are those of Mesa 25.2 on x86-64 (read from the library's DWARF; `shader.check_layout` has Mesa
print a shader in which they were used). Numbers of opcodes and of intrinsics' indices are not assumed: they
are looked up by name in the library's own tables.

tinymesa is built with assertions, and aborts the process on a malformed shader: run it in a child
(`dsp.adreno.ir3.child`).
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, byref, c_bool, c_char_p, c_int, c_int8, c_size_t, c_uint8, c_void_p
from ctypes import c_uint16 as u16
from ctypes import c_uint32 as u32
from ctypes import c_uint64 as u64
from typing import Any

from sdk.errors import EnvironmentMissing
from sdk.toolchain import TINYMESA, tinymesa

CHIP_IDS = {630: 0x06030001, 650: 0x06050002, 660: 0x06060001}
"""Of the parts that we count for, as Mesa names them."""
DOTS = (650, 660)
"""Parts with dot products of four bytes: Adreno 650 by two instructions and an addition, 660 by one."""
PART = 630
"""Adreno 630, which the figures of a network are for."""

COMPUTE = 5
"""MESA_SHADER_COMPUTE."""

TRAP = 0x1FFFFFFFFF000
"""ir3_compiler_options.uche_trap_base, an address that is never read; as Mesa's drivers of a6xx set it."""

HINT = f"pip install 'tinymesa=={TINYMESA}.*'"

TABLE = 1000
"""More entries than any table of opcodes has."""

INT32, UINT32, FLOAT16, FLOAT32 = 34, 36, 144, 160
"""nir_type_int32, nir_type_uint32, nir_type_float16, nir_type_float32."""
TXF = 4
"""nir_texop_txf: a texel by integer coordinates."""
COORD = 0
"""nir_tex_src_coord."""
DIM_2D, DIM_BUFFER = 1, 5
"""GLSL_SAMPLER_DIM_2D, GLSL_SAMPLER_DIM_BUF."""
BREAK = 2
"""nir_jump_break."""
WORKGROUP, ACQ_REL, SHARED = 4, 3, 1 << 19
"""SCOPE_WORKGROUP, NIR_MEMORY_ACQ_REL, nir_var_mem_shared."""
DONT_UNROLL = 2
"""nir_loop_control_dont_unroll."""
NON_READABLE, CAN_REORDER = 8, 64
"""gl_access_qualifier."""

# Offsets into Mesa's structs, in bytes.
SHADER_NUM_TEXTURES, SHADER_NUM_UBOS, SHADER_NUM_IMAGES, SHADER_WORKGROUP = 101, 102, 105, 328
SHADER_SHARED_SIZE = 316
DEF_COMPONENTS, DEF_BITS = 28, 29
SRC_SSA = 24
ALU_DEF, ALU_SRC, ALU_SWIZZLE = 40, 72, 72 + 32
CONST_DEF, CONST_VALUE = 32, 64
INTRINSIC_DEF, INTRINSIC_COMPONENTS, INTRINSIC_INDEX, INTRINSIC_SRC, SRC_SIZE = 40, 72, 76, 120, 32
TEX_DIM, TEX_TYPE, TEX_OP, TEX_DEF, TEX_SRC, TEX_COORDS, TEX_TEXTURE = 32, 36, 40, 48, 80, 92, 112
TEX_SRC_TYPE = 32
LOOP_CONTROL = 104
VARIANT_BIN, VARIANT_INFO = 0xC0, 0xE0
KEY_SIZE, OPTIONS_SIZE = 80, 228


class _Cursor(Structure):
    _fields_ = (("option", c_int), ("at", c_void_p))


class _Builder(Structure):
    _fields_ = (
        *(("cursor", _Cursor), ("exact", c_bool), ("fast_math", u32)),
        *(("shader", c_void_p), ("function", c_void_p)),
    )


class _OpInfo(Structure):
    _fields_ = (("name", c_char_p), ("rest", c_uint8 * 48))


class IntrinsicInfo(Structure):
    """struct nir_intrinsic_info."""

    _fields_ = (
        *(("name", c_char_p), ("sources", c_uint8), ("source_components", c_int8 * 11)),
        *(("has_dest", c_bool), ("dest_components", c_uint8), ("dest_bits", c_uint8), ("like", c_int8)),
        *(("indices", c_uint8), ("index", c_uint8 * 8), ("index_map", c_uint8 * 75), ("flags", c_int)),
    )

    @property
    def open_size(self) -> bool:
        """Whether each instruction has its own number of components."""
        return (self.has_dest and not self.dest_components) or 0 in self.source_components[: self.sources]


class _DeviceId(Structure):
    _fields_ = (("gpu_id", u32), ("chip_id", u64))


class _CompilerOptions(Structure):
    _fields_ = (
        *(("push_ubo_with_preamble", c_bool), ("disable_cache", c_bool), ("bindless", c_int * 2)),
        *(("flags", c_bool * 5), ("trap", u64)),
    )


class _DecodeOptions(Structure):
    _fields_ = (
        *(("gpu_id", u32), ("show_errors", c_bool), ("max_errors", u32), ("branch_labels", c_bool)),
        *(("stop", c_bool), ("callbacks", c_void_p * 6), ("entry_points", u32), ("entries", c_void_p)),
    )


class Info(Structure):
    """struct ir3_info: ir3's counts of the code it generated.

    Of interest: `instructions` are issue slots, repeats and nops included, without the padding behind `end`;
    `max_reg` is the highest full register (of four components), -1 for none; `sstall` and `systall` are
    cycles that ir3 expects to wait for (ss) and (sy); `stp` and `ldp` are stores to and loads from private
    memory, which are spills where the shader has no arrays.
    """

    _fields_ = (
        *(("size", u32), ("constants", u32), ("dwords", u16), ("instructions", u16)),
        *(("preamble", u16), ("nops", u16), ("mov", u16), ("cov", u16), ("stp", u16), ("ldp", u16)),
        *(("max_reg", c_int8), ("max_half_reg", c_int8), ("max_const", ctypes.c_int16)),
        *(("max_waves", c_int8), ("subgroup_size", c_uint8), ("flags", c_bool * 4)),
        *(("ss", u16), ("sy", u16), ("sstall", u16), ("systall", u16)),
    )


_P = c_void_p
_FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "fd_dev_info_raw": (_P, (_P,)),
    "glsl_type_singleton_init_or_ref": (None, ()),
    "ir3_compiler_create": (_P, (_P, _P, _P, _P)),
    "ir3_finalize_nir": (None, (_P, _P, _P)),
    "ir3_get_compiler_options": (_P, (_P,)),
    "ir3_isa_disasm": (None, (_P, c_int, _P, _P)),
    "ir3_shader_create_variant": (_P, (_P, _P, c_bool)),
    "ir3_shader_from_nir": (_P, (_P, _P, _P, _P)),
    "nir_alu_instr_create": (_P, (_P, c_int)),
    "nir_build_alu1": (_P, (_P, c_int, _P)),
    "nir_build_alu2": (_P, (_P, c_int, _P, _P)),
    "nir_build_alu3": (_P, (_P, c_int, _P, _P, _P)),
    "nir_build_alu4": (_P, (_P, c_int, _P, _P, _P, _P)),
    "nir_builder_init_simple_shader": (_Builder, (c_int, _P, c_char_p)),
    "nir_builder_instr_insert": (None, (_P, _P)),
    "nir_builder_instr_insert_at_top": (None, (_P, _P)),
    "nir_def_init": (None, (_P, _P, u32, u32)),
    "nir_intrinsic_instr_create": (_P, (_P, c_int)),
    "nir_jump_instr_create": (_P, (_P, c_int)),
    "nir_load_const_instr_create": (_P, (_P, u32, u32)),
    "nir_lower_reg_intrinsics_to_ssa": (c_bool, (_P,)),
    "nir_pop_if": (None, (_P, _P)),
    "nir_pop_loop": (None, (_P, _P)),
    "nir_push_if": (_P, (_P, _P)),
    "nir_push_loop": (_P, (_P,)),
    "nir_shader_as_str": (c_char_p, (_P, _P)),
    "nir_tex_instr_create": (_P, (_P, u32)),
    "nir_validate_shader": (None, (_P, c_char_p)),
}


class Mesa:
    """The library, and its ir3 compiler for one Adreno.

    Args:
        part: of CHIP_IDS.

    Raises:
        EnvironmentMissing: tinymesa is not installed, of an unsupported release, or has another layout.
    """

    def __init__(self, part: int = PART) -> None:
        self.part = part
        self.version, path = tinymesa()
        self.lib: Any = ctypes.CDLL(path)
        self.libc: Any = ctypes.CDLL(None)
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(self.lib, name)
            function.restype, function.argtypes = result, arguments
        self.libc.open_memstream.restype = _P
        self.libc.open_memstream.argtypes = (POINTER(_P), POINTER(c_size_t))
        self.libc.fclose.argtypes = self.libc.free.argtypes = (_P,)
        self._ops: dict[str, int] = {}
        self._intrinsics: dict[str, int] = {}
        self._indices: dict[str, int] = {}
        self.lib.glsl_type_singleton_init_or_ref()
        device = _DeviceId(part, CHIP_IDS[part])
        options = _CompilerOptions(disable_cache=True, trap=TRAP)
        info = self.lib.fd_dev_info_raw(byref(device))
        self._kept = device  # the compiler points to it
        self.compiler = self.lib.ir3_compiler_create(None, byref(device), info, byref(options))
        self.nir_options = self.lib.ir3_get_compiler_options(self.compiler)

    def op(self, name: str) -> int:
        """Number of an ALU opcode."""
        return self._number("nir_op_infos", ctypes.sizeof(_OpInfo), name, self._ops)

    def intrinsic(self, name: str) -> tuple[int, IntrinsicInfo]:
        """Number and description of an intrinsic."""
        number = self._number("nir_intrinsic_infos", ctypes.sizeof(IntrinsicInfo), name, self._intrinsics)
        table = IntrinsicInfo.in_dll(self.lib, "nir_intrinsic_infos")
        return number, (IntrinsicInfo * TABLE).from_address(ctypes.addressof(table))[number]

    def index(self, name: str) -> int:
        """Number of a constant index of intrinsics, for example "write_mask"."""
        return self._number("nir_intrinsic_index_names", ctypes.sizeof(c_char_p), name, self._indices)

    def _number(self, table: str, size: int, name: str, known: dict[str, int]) -> int:
        """Index of the entry whose first field is `name`; nothing behind it is read."""
        base = ctypes.addressof(c_char_p.in_dll(self.lib, table))
        while name not in known:
            if len(known) == TABLE:
                raise EnvironmentMissing(f"tinymesa's {table} have no {name}", hint=HINT)
            entry = c_char_p.from_address(base + size * len(known)).value
            known[(entry or b"").decode(errors="replace") or f"#{len(known)}"] = len(known)
        return known[name]

    def text(self, shader: int) -> str:
        """A shader as Mesa prints it."""
        return str(self.lib.nir_shader_as_str(shader, None).decode())

    def disassemble(self, code: int, size: int) -> str:
        """The listing of `size` bytes of machine code."""
        text, length = _P(), c_size_t()
        stream = self.libc.open_memstream(byref(text), byref(length))
        self.lib.ir3_isa_disasm(
            code, size, stream, byref(_DecodeOptions(gpu_id=self.part, branch_labels=True))
        )
        self.libc.fclose(stream)
        listing = ctypes.string_at(text.value or 0, length.value).decode()
        self.libc.free(text)
        return listing
