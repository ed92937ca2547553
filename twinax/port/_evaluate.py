"""A program on JAX arrays."""

from __future__ import annotations

import operator as python
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import twinax.port.operators  # noqa: F401  (fills the table)
from twinax.errors import TwinaxError
from twinax.port._dtypes import result_type, to_jax_dtype
from twinax.port._indices import IndexOutside
from twinax.port._program import Node, Program, fill
from twinax.port._table import OPERATORS

PYTHON = {
    name: getattr(python, name)
    for name in (
        "getitem",
        "add",
        "sub",
        "mul",
        "floordiv",
        "truediv",
        "mod",
        "neg",
        "pow",
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
    )
}
"""What Python itself does to sizes, and to results that come together."""
ASSERTIONS = frozenset(
    {
        "aten._assert_async.msg",
        "aten._assert_scalar.default",
        "aten._assert_tensor_metadata.default",
        "aten.sym_constrain_range_for_size.default",
    }
)
"""What checks numbers and gives nothing; a compiled program cannot raise."""


def evaluate(
    program: Program,
    parameters: Mapping[str, Any],
    buffers: Mapping[str, Any],
    inputs: Sequence[Any],
    draws: Mapping[str, Any],
    *,
    wide: bool = False,
    watch: Callable[[Node, Any], None] | None = None,
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Results, and changed buffers by name. All floats are doubles when `wide`; `watch` sees the value of each node."""
    values: dict[str, Any] = {node: parameters[owner] for node, owner in program.parameters.items()}
    values |= {node: buffers[owner] for node, owner in program.buffers.items()}
    values |= {node: _constant(value, wide) for node, value in program.constants.items()}
    values |= {node: value for node, value in zip(program.inputs, inputs, strict=True) if node is not None}

    def value(tree: Any) -> Any:
        return fill(tree, lambda ref: values[ref.name], lambda dtype: to_jax_dtype(dtype.name, wide))

    for node in program.nodes:
        values[node.name] = _run(node, value(node.arguments), value(dict(node.options)), draws.get(node.name), wide)
        if watch is not None:
            watch(node, values[node.name])
    return value(program.results), value(dict(program.changed))


def run_node(
    node: Node, arguments: Sequence[Any], options: Mapping[str, Any], draw: Any = None, wide: bool = False
) -> Any:
    """One node on JAX arrays."""
    return _run(node, tuple(arguments), dict(options), draw, wide)


def _run(node: Node, arguments: Any, options: dict[str, Any], draw: Any, wide: bool) -> Any:
    if node.operator in PYTHON:
        return PYTHON[node.operator](*arguments)
    found = OPERATORS[node.operator]
    if found.promote:
        arguments = promoted(arguments, wide)
    if draw is not None:
        options["draw"] = jnp.asarray(draw, to_jax_dtype("float32", wide))
    try:
        value = found.function(*arguments, **options)
    except IndexOutside as error:
        raise TwinaxError(f"in {node.operator}, {error}" + (f" ({node.line})" if node.line else "")) from None
    return cast_results(value, node.dtypes, wide)


def promoted(arguments: Sequence[Any], wide: bool = False) -> tuple[Any, ...]:
    """Arguments of an elementwise operator, its arrays in the dtype that PyTorch computes in."""
    operands = [x for x in arguments if isinstance(x, (bool, int, float, complex)) or is_array(x)]
    dtype = result_type(*operands, wide=wide)
    return tuple(jnp.asarray(x).astype(dtype) if is_array(x) else x for x in arguments)


def is_array(x: Any) -> bool:
    return isinstance(x, (jax.Array, np.ndarray, np.generic))


def cast_results(value: Any, dtypes: Sequence[str | None], wide: bool = False) -> Any:
    """Results in the dtypes that PyTorch's have."""
    if isinstance(value, (list, tuple)):
        return tuple(_cast(one, dtype, wide) for one, dtype in zip(value, dtypes, strict=False))
    return _cast(value, dtypes[0], wide)


def _cast(value: Any, name: str | None, wide: bool) -> Any:
    if value is None or name is None:
        return value
    return jnp.asarray(value).astype(to_jax_dtype(name, wide))


def _constant(value: Any, wide: bool) -> Any:
    if not isinstance(value, np.ndarray):
        return value
    with jax.ensure_compile_time_eval():  # its numbers stay known under jit, so that a mask may pick entries by it
        return jnp.asarray(value, to_jax_dtype(value.dtype.name, wide))
