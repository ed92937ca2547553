"""Elementwise operators of the table against PyTorch: values, dtypes and gradients in float64."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from port_operators import check_operator

from twinax.port._evaluate import run_node
from twinax.port._program import Node
from twinax.port._table import OPERATORS

RNG = np.random.default_rng(0)
INF, NAN = np.inf, np.nan
X, Y = RNG.normal(size=(3, 4)), RNG.normal(size=(3, 4))
ROW, ONE = RNG.normal(size=4), np.array(1.5)
SPECIAL = np.array([-INF, -2.5, -2.0, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.5, INF, NAN])
KINKS = np.array([-3.0, -1.0, 0.0, 1.0, 3.0])
EMPTY = np.zeros((0, 3))
WHOLE, OTHER = np.array([[-7, -2, 0], [1, 3, 8]]), np.array([[2, -3, 5], [-1, 2, 3]])
BYTES, SMALL = np.array([0, 3, 250], np.uint8), np.array([-5, 0, 7], np.int8)
TRUTH, WRONG = np.array([True, True, False, False]), np.array([True, False, True, False])
SINGLE = 1e-6
"""Tolerance where a result is a float32: it is computed in doubles here, and in floats by PyTorch."""

INSIDE = {"acos": 0.9, "asin": 0.9, "atanh": 0.9, "erfinv": 0.9}
POSITIVE = {"log", "log10", "log2", "sqrt", "rsqrt", "lgamma", "digamma", "special_ndtri"}
FUNCTIONS = [
    name.split(".")[1]
    for name, one in OPERATORS.items()
    if one.kind == "functions" and name.endswith(".default") and name != "aten.polygamma.default"
]
NOT_SMOOTH = {"floor", "ceil", "trunc", "round", "sign", "sgn", "abs", "neg", "angle"}
# These are series in both, to fewer digits.
SERIES = {"erfinv": 1e-9, "special_ndtri": 1e-9, "special_erfcx": 1e-9, "digamma": 1e-8, "lgamma": 1e-10, "i0": 1e-10}


def argument(name: str, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Numbers in the domain of a function."""
    x = np.random.default_rng(seed).normal(size=shape)
    if name in INSIDE:
        return np.tanh(x) * INSIDE[name]
    if name == "special_ndtri":
        return 0.5 + 0.45 * np.tanh(x)
    if name == "acosh":
        return 1.1 + np.abs(x)
    if name in POSITIVE or name == "reciprocal":
        return 0.2 + np.abs(x)
    if name == "log1p":
        return np.abs(x) - 0.9
    return x


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name):
    tolerance = SERIES.get(name, 1e-12)
    for shape in [(3, 4), (), (0, 3)]:
        check_operator(f"aten.{name}.default", argument(name, shape), tolerance=tolerance)


@pytest.mark.parametrize("name", sorted(set(FUNCTIONS) - {"special_ndtri"}))
def test_functions_of_special_numbers(name):
    tolerance = SERIES.get(name, 1e-12)
    finite = name in ("lgamma", "digamma", "special_erfcx", "i0", "special_i0e", "special_i1", "special_i1e")
    x = np.array([-0.5, 0.5, 1.0, 2.0, 3.5]) if finite else SPECIAL
    check_operator(f"aten.{name}.default", x, tolerance=tolerance, gradients=False)


@pytest.mark.parametrize("name", sorted(set(FUNCTIONS) - {"erfinv", "special_ndtri"}))
def test_functions_of_whole_numbers(name):
    for x in (WHOLE, SMALL, BYTES, TRUTH):
        if not (x is TRUTH and name in NOT_SMOOTH | {"reciprocal"}):
            check_operator(f"aten.{name}.default", np.minimum(x, 5), tolerance=SINGLE)


KINKED = {
    "abs": {},
    "relu": {},
    "leaky_relu": {},
    "elu": {},
    "gelu": {},
    "hardtanh": {},
    "mish": {},
    "softplus": {},
    "sigmoid": {},
    "tanh": {},
    "sign": {},
    "floor": {},
    "round": {},
}


@pytest.mark.parametrize("name", KINKED)
def test_gradients_at_kinks(name):
    check_operator(f"aten.{name}.default", KINKS)
    check_operator(f"aten.{name}.default", np.array([-1000.0, -30.0, 30.0, 1000.0]))


@pytest.mark.parametrize("name", ["relu", "leaky_relu", "elu", "gelu", "hardtanh", "mish", "softplus"])
def test_activations_of_special_numbers(name):
    check_operator(f"aten.{name}.default", SPECIAL, gradients=False)
    for x in (EMPTY, np.array(0.3), np.array(0.0)):
        check_operator(f"aten.{name}.default", x)


def test_activations_with_options():
    check_operator("aten.elu.default", X, 1.5, 2.0, 0.5)
    check_operator("aten.leaky_relu.default", KINKS, 0.2)
    check_operator("aten.gelu.default", X, approximate="tanh")
    check_operator("aten.hardtanh.default", KINKS, -3, 1)
    check_operator("aten.softplus.default", X * 20, 2.0, 3.0)
    check_operator("aten._prelu_kernel.default", KINKS, np.full(5, 0.25))
    check_operator("aten.rrelu_with_noise_functional.default", X, np.zeros((3, 4)))


PAIRS = ("add", "sub", "mul", "div", "remainder", "fmod", "maximum", "minimum", "atan2", "hypot", "copysign", "fmax")
PAIRS += ("fmin", "rsub", "pow")
OVERLOAD = dict.fromkeys(("maximum", "minimum", "atan2", "hypot", "fmax", "fmin"), "default") | {"pow": "Tensor_Tensor"}
COMPARED = ("eq", "ne", "lt", "le", "gt", "ge")


def pair(name: str) -> str:
    return f"aten.{name}.{OVERLOAD.get(name, 'Tensor')}"


@pytest.mark.parametrize("name", PAIRS)
def test_two_arrays(name):
    x = np.abs(X) + 0.1 if name == "pow" else X
    for one, other in [(x, Y), (x, ROW), (x[0], Y), (ONE, Y), (x, ONE), (ONE, ONE * 2), (EMPTY, np.ones(3))]:
        check_operator(pair(name), one, other)


@pytest.mark.parametrize("name", PAIRS + COMPARED)
def test_pairs_of_special_numbers(name):
    x, y = (part.ravel() for part in np.meshgrid(SPECIAL, SPECIAL))
    check_operator(pair(name), x, y, gradients=False)


@pytest.mark.parametrize("name", PAIRS + COMPARED)
def test_pairs_of_dtypes(name):
    for one, other in [
        (WHOLE, OTHER),
        (WHOLE, X[:2, :3]),
        (X[:2, :3].astype(np.float32), OTHER),
        (X[:2, :3].astype(np.float32), np.array(2.0)),
        (OTHER, np.array(2.0, np.float32)),
        (SMALL, BYTES + 1),
        (BYTES, np.array(3)),
    ]:
        if name == "pow":
            other = np.minimum(np.abs(other), 3)
        if name == "hypot" and (one.dtype.kind in "iu" and other.dtype.kind in "iu"):
            continue
        if name in ("remainder", "fmod", "div") and name != "div" and (np.asarray(other) == 0).any():
            continue
        check_operator(pair(name), one, other, tolerance=SINGLE)


@pytest.mark.parametrize("name", ["maximum", "minimum", "fmax", "fmin", "sub", "div", "hypot"])
def test_gradients_at_ties(name):
    check_operator(pair(name), np.array([1.0, 2.0, 3.0]), np.array([1.0, 3.0, 3.0]))


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "rsub", "remainder", "fmod", "copysign"])
def test_arrays_and_numbers(name):
    for number in (2, 2.5, -3):
        for x in (X, WHOLE, np.array(3), X.astype(np.float32), SMALL, ONE):
            check_operator(f"aten.{name}.Scalar", x, number, tolerance=SINGLE)
    check_operator(f"aten.{name}.Scalar", X, 0.7)


def test_scaled_sums():
    for name in ("add", "sub", "rsub"):
        check_operator(f"aten.{name}.Tensor", X, Y, alpha=2.5)
        check_operator(f"aten.{name}.Tensor", WHOLE, OTHER, alpha=3)
        check_operator(f"aten.{name}.Scalar", X, 2.0, 3)


@pytest.mark.parametrize("mode", [None, "trunc", "floor"])
def test_rounded_division(mode):
    check_operator("aten.div.Tensor_mode", X * 5, Y, rounding_mode=mode)
    check_operator("aten.div.Tensor_mode", WHOLE, OTHER, rounding_mode=mode, tolerance=SINGLE)
    check_operator("aten.div.Scalar_mode", WHOLE, 3, rounding_mode=mode, tolerance=SINGLE)
    check_operator("aten.div.Scalar_mode", WHOLE, -2.5, rounding_mode=mode, tolerance=SINGLE)
    check_operator("aten.div.Scalar_mode", X, -0.7, rounding_mode=mode)
    x, y = (part.ravel() for part in np.meshgrid(SPECIAL, SPECIAL))
    check_operator("aten.div.Tensor_mode", x, y, rounding_mode=mode, gradients=False)


def test_floor_divide():
    check_operator("aten.floor_divide.default", X * 5, Y, gradients=False)
    check_operator("aten.floor_divide.default", WHOLE, OTHER)
    check_operator("aten.floor_divide.Scalar", WHOLE, -3)
    check_operator("aten.true_divide.Tensor", X, Y)


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, -1, -2, 0.0, 2.0, 0.5, -0.5, 1.5, -1.5, 65.0, 0.3])
def test_powers(exponent):
    x = np.array([0.3, 1.0, 1.7]) if exponent == 65.0 else np.array([0.3, 1.0, 2.5])
    check_operator("aten.pow.Tensor_Scalar", x, exponent)
    check_operator("aten.pow.Tensor_Scalar", x.astype(np.float32), exponent, tolerance=SINGLE)
    check_operator("aten.pow.Tensor_Scalar", SPECIAL[1:-2], exponent, gradients=False)
    if float(exponent).is_integer():
        check_operator("aten.pow.Tensor_Scalar", -x, exponent)
    if exponent >= 0:
        check_operator("aten.pow.Tensor_Scalar", np.array([0.0, 2.0]), exponent)
        check_operator("aten.pow.Tensor_Scalar", np.abs(WHOLE), exponent if exponent != 65 else 3, tolerance=SINGLE)


def test_powers_of_arrays():
    x, y = (part.ravel() for part in np.meshgrid([0.0, 0.5, 1.0, 2.0], [-1.0, 0.0, 0.5, 1.0, 2.0]))
    check_operator("aten.pow.Tensor_Tensor", x, y)
    check_operator(
        "aten.pow.Tensor_Tensor", np.array([-2.0, -1.0, 0.0, 3.0]), np.array([2.0, 3.0, 0.0, 1.0]), gradients=False
    )
    for base in (2, 0.5, 0, 0.0, 3):
        check_operator("aten.pow.Scalar", base, np.array([0.5, 0.0, 2.0, -1.0]))
    check_operator("aten.pow.Scalar", 2, np.abs(WHOLE))


@pytest.mark.parametrize("name", COMPARED)
def test_comparisons(name):
    for x in (np.array([1.0, 2.0, 3.0]), np.array([1, 2, 3]), BYTES, TRUTH, np.array(2.0)):
        for number in (2, 2.5, True):
            check_operator(f"aten.{name}.Scalar", x, number)
    check_operator(f"aten.{name}.Tensor", TRUTH, WRONG)
    check_operator(f"aten.{name}.Tensor", WHOLE, np.array(0.5, np.float32))


@pytest.mark.parametrize("name", ["logical_and", "logical_or", "logical_xor"])
def test_logic(name):
    for x, y in [(TRUTH, WRONG), (SPECIAL, SPECIAL[::-1]), (WHOLE, OTHER), (BYTES, np.array(True)), (X, TRUTH)]:
        check_operator(f"aten.{name}.default", x, y)


@pytest.mark.parametrize("name", ["logical_not", "isnan", "isinf", "signbit"])
def test_questions(name):
    for x in (SPECIAL, TRUTH, WHOLE, BYTES, EMPTY, ONE):
        check_operator(f"aten.{name}.default", x)


@pytest.mark.parametrize("name", ["bitwise_and", "bitwise_or", "bitwise_xor"])
def test_bits(name):
    for x, y in [(TRUTH, WRONG), (WHOLE, OTHER), (SMALL, BYTES), (BYTES, np.array(5)), (TRUTH, np.array([1, 2, 3, 4]))]:
        check_operator(f"aten.{name}.Tensor", x, y)
    check_operator(f"aten.{name}.Scalar", WHOLE, 6)
    check_operator(f"aten.{name}.Scalar", TRUTH, True)
    check_operator(f"aten.{name}.Scalar_Tensor", 6, WHOLE)


def test_shifts_and_bits_turned_around():
    for name in ("bitwise_left_shift", "bitwise_right_shift"):
        check_operator(f"aten.{name}.Tensor", WHOLE, np.abs(OTHER))
        check_operator(f"aten.{name}.Tensor_Scalar", BYTES, 3)
        check_operator(f"aten.{name}.Scalar_Tensor", 5, np.abs(OTHER))
    for x in (WHOLE, BYTES, TRUTH):
        check_operator("aten.bitwise_not.default", x)


BOUNDS = [(None, 1.0), (-1.0, None), (-1.0, 1.0), (1, 3), (2.0, -2.0), (-INF, INF)]


@pytest.mark.parametrize(("low", "high"), BOUNDS)
def test_clamp(low, high):
    check_operator("aten.clamp.default", KINKS, low, high)
    check_operator("aten.clamp.default", SPECIAL, low, high)
    check_operator("aten.clamp.default", np.array(1.0), low, high)
    check_operator("aten.clamp.default", EMPTY, low, high)
    check_operator("aten.clamp.default", WHOLE, low, high, tolerance=SINGLE)
    bounds = [None if bound is None else np.full(5, float(bound)) for bound in (low, high)]
    check_operator("aten.clamp.Tensor", KINKS, *bounds)
    check_operator("aten.clamp.Tensor", KINKS, *(None if bound is None else bound[:1] for bound in bounds))


def test_clamp_by_one_bound():
    for name in ("clamp_min", "clamp_max"):
        check_operator(f"aten.{name}.default", KINKS, 1.0)
        check_operator(f"aten.{name}.Tensor", KINKS, np.array([-3.0, 0.0, 1.0, 1.0, 1.0]))
    x, low, high = (part.ravel() for part in np.meshgrid(SPECIAL, SPECIAL, SPECIAL))
    check_operator("aten.clamp.Tensor", x, low, high, gradients=False)


def test_choices():
    for x, y in [(X, Y), (X, ONE), (ROW, Y), (X.astype(np.float32), np.array(2.0)), (X, 1 + np.arange(4))]:
        check_operator("aten.where.self", TRUTH, x, y, tolerance=1e-12 if x.dtype == np.float64 else SINGLE)
    check_operator("aten.where.self", TRUTH, SPECIAL[:4], SPECIAL[-4:])
    check_operator("aten.masked_fill.Scalar", X, TRUTH, -INF)
    check_operator("aten.masked_fill.Tensor", X, TRUTH, ONE)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "uint8", "bool", "bfloat16"])
def test_casts(dtype):
    for x in (np.array([-2.7, -1.0, 0.0, 0.3, 2.7]), np.array([0, 1, 2]), TRUTH):
        x = np.abs(x) if dtype == "uint8" else x
        if dtype == "bfloat16":
            x = torch.from_numpy(x).bfloat16()
            check_operator("aten._to_copy.default", x.float(), dtype=torch.float64)
            continue
        check_operator("aten._to_copy.default", x, dtype=getattr(torch, dtype), tolerance=SINGLE)
    check_operator("aten._to_copy.default", X)


def test_copies():
    check_operator("aten.copy.default", X, ROW, gradients=False)
    check_operator("aten.copy.default", X.astype(np.float32), Y, gradients=False, tolerance=SINGLE)
    check_operator("aten.fill.Scalar", X, 2)
    check_operator("aten.fill.Tensor", X, ONE)
    check_operator("aten.detach.default", X)


def test_functions_of_other_orders():
    check_operator("aten.polygamma.default", 0, argument("lgamma", (3,)), gradients=False)
    check_operator("aten.polygamma.default", 1, argument("lgamma", (3,)), tolerance=1e-8, gradients=False)
    for decimals in (0, 2, -1):
        check_operator("aten.round.decimals", X * 100, decimals=decimals)


@settings(max_examples=15)
@given(st.lists(st.integers(0, 3), max_size=3), st.data())
def test_shapes_that_broadcast(shape, data):
    kept = data.draw(st.lists(st.booleans(), min_size=len(shape), max_size=len(shape)))
    rng = np.random.default_rng(len(shape))
    x = rng.normal(size=shape)
    y = rng.normal(size=[n if keep else 1 for n, keep in zip(shape, kept, strict=True)])
    for name in ("add", "mul", "div", "maximum"):
        check_operator(pair(name), x, y)
    check_operator("aten.clamp.Tensor", x, y - 1, y + 1)


@pytest.mark.parametrize(
    "name", ["clamp.Tensor", "pow.Tensor_Tensor", "where.self", "gelu.default", "remainder.Tensor"]
)
def test_mapped_and_compiled_in_single_precision(name):
    number = {"clamp.Tensor": 3, "where.self": 3, "gelu.default": 1}.get(name, 2)
    arrays = [jnp.abs(jnp.asarray(RNG.normal(size=(5, 4)), jnp.float32)) + 0.1 for _ in range(number)]
    if name == "where.self":
        arrays[0] = arrays[0] > 0.7
    node = Node("node", f"aten.{name}", (), {}, ("float32",), None)

    def run(*given):
        return run_node(node, given, {})

    packet, overload = name.split(".")
    expected = getattr(getattr(torch.ops.aten, packet), overload)(*(torch.from_numpy(np.array(x)) for x in arrays))
    found = jax.jit(jax.vmap(run))(*arrays)
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-5, atol=1e-6)
