"""The table of operators on plain tensors, and how a node is converted by it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from sdk.expression.trace import apply
from sdk.importers.onnx_file import OnnxNode
from sdk.importers.plain import (
    contrib,
    elementwise,
    indices,
    loops,
    moves,
    packed,
    products,
    recurrences,
    reductions,
    scans,
    spectra,
    windows,
)
from sdk.importers.plain.conversion import Conversion
from sdk.importers.plain.functions import expanded, has_body
from sdk.importers.plain.types import check_types

if TYPE_CHECKING:
    from sdk.importers.walk import Walk

Handler = Callable[[Conversion], None]


HANDLERS: Mapping[tuple[str, str], Handler] = {
    **contrib.HANDLERS,
    **{("", name): handler for name, handler in elementwise.OPERATORS.items()},
    ("", "ArgMax"): reductions.arg("argmax"),
    ("", "ArgMin"): reductions.arg("argmin"),
    ("", "AveragePool"): windows.average_pool,
    ("", "BatchNormalization"): reductions.batch_normalization,
    ("", "Cast"): elementwise.cast,
    ("", "BitShift"): elementwise.bits,
    ("", "BitwiseNot"): elementwise.bits,
    ("", "CastLike"): elementwise.cast,
    ("", "Clip"): elementwise.clip_to,
    ("", "Compress"): indices.compress,
    ("", "Concat"): moves.concat,
    ("", "ConcatFromSequence"): moves.concat_from_sequence,
    ("", "Conv"): products.conv,
    ("", "ConvTranspose"): products.conv_transpose,
    ("", "CumSum"): moves.cumsum,
    ("", "DFT"): spectra.dft,
    ("", "DepthToSpace"): moves.depth_to_space,
    ("", "DequantizeLinear"): elementwise.dequantize,
    ("", "Dropout"): moves.dropout,
    ("", "Einsum"): products.einsum,
    ("", "Expand"): moves.expand,
    ("", "Flatten"): moves.flatten,
    ("", "GRU"): recurrences.recurrence,
    ("", "Gather"): indices.gather,
    ("", "GatherElements"): indices.gather_elements,
    ("", "GatherND"): indices.gather_nd,
    ("", "Gemm"): products.gemm,
    ("", "GlobalAveragePool"): reductions.global_average_pool,
    ("", "GlobalMaxPool"): reductions.global_max_pool,
    ("", "GridSample"): indices.grid_sample,
    ("", "GroupNormalization"): reductions.group_normalization,
    ("", "Hardmax"): reductions.over_axis(reductions.hardmax),
    ("", "If"): loops.branch,
    ("", "Identity"): moves.identity,
    ("", "InstanceNormalization"): reductions.instance_normalization,
    ("", "LRN"): reductions.local_response_normalization,
    ("", "LSTM"): recurrences.recurrence,
    ("", "LayerNormalization"): reductions.layer_normalization,
    ("", "LogSoftmax"): reductions.over_axis(reductions.log_softmax),
    ("", "Loop"): loops.loop,
    ("", "LpNormalization"): reductions.lp_normalization,
    ("", "LpPool"): windows.lp_pool,
    ("", "MatMul"): products.matmul,
    ("", "MaxPool"): windows.max_pool,
    ("", "Mean"): elementwise.mean,
    ("", "OneHot"): indices.one_hot,
    ("", "Pad"): moves.pad,
    ("", "Pow"): elementwise.power,
    ("", "QuantizeLinear"): elementwise.quantize,
    ("", "RMSNormalization"): reductions.layer_normalization,
    ("", "RNN"): recurrences.recurrence,
    ("", "ReduceL1"): reductions.reduction("sum", before=lambda s: apply("abs", s)),
    ("", "ReduceL2"): reductions.reduction("sum", before=lambda s: s * s, after=lambda s: apply("sqrt", s)),
    ("", "ReduceLogSum"): reductions.reduction("sum", after=lambda s: apply("log", s)),
    ("", "ReduceLogSumExp"): reductions.reduce_log_sum_exp,
    ("", "ReduceMax"): reductions.reduction("max"),
    ("", "ReduceMean"): reductions.reduction("mean"),
    ("", "ReduceMin"): reductions.reduction("min"),
    ("", "ReduceProd"): reductions.reduction("prod"),
    ("", "ReduceSum"): reductions.reduction("sum"),
    ("", "ReduceSumSquare"): reductions.reduction("sum", before=lambda s: s * s),
    ("", "Reshape"): moves.reshape,
    ("", "Resize"): windows.resize,
    ("", "ReverseSequence"): indices.reverse_sequence,
    ("", "STFT"): spectra.stft,
    ("", "Scan"): scans.scan,
    ("", "Scatter"): indices.scatter_elements,
    ("", "ScatterElements"): indices.scatter_elements,
    ("", "ScatterND"): indices.scatter_nd,
    ("", "SequenceAt"): moves.sequence_at,
    ("", "SequenceConstruct"): moves.sequence_construct,
    ("", "Slice"): moves.slices,
    ("", "Softmax"): reductions.over_axis(reductions.softmax),
    ("", "SpaceToDepth"): moves.space_to_depth,
    ("", "Split"): moves.split,
    ("", "SplitToSequence"): moves.split_to_sequence,
    ("", "Squeeze"): moves.squeeze,
    ("", "Tile"): moves.tile,
    ("", "TopK"): indices.top_k,
    ("", "Transpose"): moves.transpose,
    ("", "Trilu"): moves.trilu,
    ("", "Unsqueeze"): moves.unsqueeze,
    ("", "Upsample"): windows.resize,
    ("", "Where"): elementwise.where,
    ("com.microsoft", "GatherBlockQuantized"): packed.gather_block_quantized,
    ("com.microsoft", "MatMulNBits"): packed.matmul_nbits,
}


def plain_table() -> list[tuple[str, str]]:
    """Operators that become the same, joined, and what that is; for the documentation."""
    rows: dict[str, list[str]] = {}
    for (domain, name), handler in HANDLERS.items():
        meaning = "One Map." if isinstance(handler, elementwise.Elementwise) else handler.__doc__ or ""
        shown = f"{domain}.{name}" if domain else name
        rows.setdefault(meaning.strip().splitlines()[0], []).append(shown)
    return sorted((", ".join(sorted(names)), meaning) for meaning, names in rows.items())


def is_known(node: OnnxNode) -> bool:
    """Whether the operator has a handler or a function body."""
    return (node.domain, node.op_type) in HANDLERS or has_body(node)


def convert_plain(walk: Walk, node: OnnxNode) -> None:
    """Append what a node becomes on plain tensors.

    Raises:
        Unsupported: there is no handler and no function body, or it is refused.
        InvalidModel: the node contradicts itself or what the model declares.
    """
    c = Conversion(walk, node)
    check_types(c)
    handler = HANDLERS.get((node.domain, node.op_type))
    if handler is not None:
        handler(c)
        return
    for inner in expanded(c):
        walk.convert(inner)
