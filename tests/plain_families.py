"""The networks of the target c's tests, a family each, for other targets."""

from tests.unit import test_c_plain as families

CASES = [
    *((families.test_convolutions, (dtype,)) for dtype in ("float16", "float32")),
    *((families.test_transposed_convolutions, (dtype,)) for dtype in ("float16", "float32")),
    *((families.test_matrices, (dtype,)) for dtype in ("float16", "float32")),
    *((families.test_products_of_narrow_floats, (dtype,)) for dtype in families.NARROW),
    *((families.test_reductions, (dtype,)) for dtype in ("float16", "float32")),
    (families.test_reductions_of_integers, ()),
    *((families.test_softmax_and_normalizations, (dtype,)) for dtype in ("float16", "float32")),
    *((families.test_windows, (dtype,)) for dtype in ("float16", "float32")),
    *((families.test_moves_by_indices, (dtype,)) for dtype in ("float16", "int32")),
    *((families.test_scatters_that_combine, (dtype,)) for dtype in ("float32", "int64")),
    *((families.test_expressions, (dtype,)) for dtype in ("float16", "float32")),
    (families.test_special_values_of_expressions, ()),
    (families.test_expressions_of_integers_and_truth_values, ()),
    (families.test_a_recurrence_within_a_recurrence, ()),
    (families.test_a_region_runs_its_nodes, ()),
    (families.test_quantised_and_plain_in_one_network, ()),
]
"""Functions of `families` and their arguments; they test `families.TARGET`."""

TWICE = (
    *(
        (case, ("float32",))
        for case in (
            families.test_transposed_convolutions,
            families.test_reductions,
            families.test_softmax_and_normalizations,
            families.test_windows,
            families.test_expressions,
        )
    ),
    (families.test_products_of_narrow_floats, ("float8e5m2",)),
    (families.test_moves_by_indices, ("int32",)),
    (families.test_scatters_that_combine, ("int64",)),
)
"""Their OpenCL kernels are those of another case, but for loads and stores. All are tried on c."""

ON_CARDS = (
    (families.test_products_of_narrow_floats, ("float8e4m3fn",)),
    (families.test_reductions_of_integers, ()),
    (families.test_scatters_that_combine, ("float32",)),
    (families.test_special_values_of_expressions, ()),
    (families.test_expressions_of_integers_and_truth_values, ()),
    (families.test_a_recurrence_within_a_recurrence, ()),
    (families.test_a_region_runs_its_nodes, ()),
)
"""Their text is the same for OpenCL and for AMD's cards, on which they are tried: they compile sooner."""
