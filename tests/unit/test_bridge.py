"""Trees of arrays between PyTorch, JAX and NumPy."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from twinax import bridge
from twinax.errors import TwinaxError, UnknownName

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


class Batch(NamedTuple):
    observation: Any
    action: Any


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Transition:
    reward: Any
    note: Any


class Network(eqx.Module):
    weight: Any
    bias: Any
    activation: Any
    name: str = eqx.field(static=True)


@dataclasses.dataclass
class Unregistered:
    reward: Any


def aligned(n: int) -> np.ndarray:
    """float32 0..n-1 in memory that starts at a multiple of 64 bytes."""
    raw = np.zeros(n + 16, np.float32)
    start = -raw.ctypes.data % 64 // 4
    raw[start : start + n] = np.arange(n)
    return raw[start : start + n]


@given(
    hnp.arrays(
        st.sampled_from(["float32", "float16", "int32", "int8", "uint8", "bool"]),
        hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
    )
)
def test_a_round_trip_through_both_frameworks_changes_nothing(array):
    through = bridge.to_numpy(bridge.to_torch(bridge.to_jax(bridge.to_torch({"x": array}))))["x"]
    assert through.dtype == array.dtype and through.shape == array.shape
    np.testing.assert_array_equal(through, array)


def test_bfloat16_goes_both_ways_unchanged():
    tensor = torch.tensor([[1.5, -2.0, 3.25]], dtype=torch.bfloat16).T
    array = bridge.to_jax(tensor)
    assert array.dtype == jnp.bfloat16 and array.shape == (3, 1)
    assert bridge.to_numpy(tensor).dtype == BFLOAT16
    back = bridge.to_torch(array)
    assert back.dtype == torch.bfloat16 and torch.equal(back, tensor)
    assert bridge.to_torch(np.asarray(2.5, BFLOAT16)).item() == 2.5


def test_trees_of_every_kind_keep_their_structure():
    net = Network(torch.nn.Parameter(torch.ones(2, 3)), None, torch.tanh, "policy")
    tree = {
        "batch": Batch(torch.zeros(2), [np.ones(3, np.float32)]),
        "t": Transition(torch.tensor(1.0), None),
        "n": net,
    }
    out = bridge.to_jax(tree)
    assert isinstance(out["batch"], Batch) and isinstance(out["t"], Transition) and isinstance(out["n"], Network)
    assert out["n"].bias is None and out["n"].activation is torch.tanh and out["n"].name == "policy"
    assert out["t"].note is None and out["t"].reward.shape == ()
    assert all(isinstance(x, jax.Array) for x in jax.tree.leaves(eqx.filter(out, eqx.is_array)))
    back = bridge.to_torch(out)
    assert torch.equal(back["n"].weight, torch.ones(2, 3)) and not back["n"].weight.requires_grad


def test_python_numbers_become_arrays_of_the_default_type():
    out = bridge.to_jax({"gamma": 0.99, "steps": 3, "done": True})
    assert [out[k].dtype for k in ("gamma", "steps", "done")] == [jnp.float32, jnp.int32, jnp.bool_]
    assert bridge.to_torch(2.5).dtype == torch.float32


def test_copies_are_independent_of_their_source():
    source = torch.arange(1024, dtype=torch.float32)
    array, host = bridge.to_jax(source), aligned(1024)
    from_host, twin = bridge.to_jax(host), bridge.to_torch(array)
    numpy, clone = bridge.to_numpy(source), bridge.to_torch(source)
    source += 1
    host += 1
    twin += 1
    assert array[5] == 5 and from_host[5] == 5 and numpy[5] == 5 and clone[5] == 5
    jax_copy = bridge.to_jax(array)
    assert jax_copy.unsafe_buffer_pointer() != array.unsafe_buffer_pointer()


def test_aliases_share_memory_when_asked_for():
    source = torch.arange(64, dtype=torch.float32, requires_grad=True)
    assert bridge.to_jax(source, copy=False).unsafe_buffer_pointer() == source.data_ptr()
    transposed = torch.zeros(4, 6).T
    assert bridge.to_jax(transposed, copy=False).shape == (6, 4)
    array = jnp.arange(64.0)
    assert bridge.to_torch(array, copy=False).data_ptr() == array.unsafe_buffer_pointer()
    host = aligned(64)
    assert bridge.to_jax(host, copy=False).unsafe_buffer_pointer() == host.ctypes.data
    assert bridge.to_torch(host, copy=False).data_ptr() == host.ctypes.data
    assert bridge.to_numpy(source, copy=False).ctypes.data == source.data_ptr()


@pytest.mark.parametrize(
    ("leaf", "message"),
    [
        (torch.zeros(64)[1:], "'x' starts 4 bytes after a multiple of 64"),
        (torch.zeros(64)[::2], r"'x' of shape \(32,\) has strides \(8,\)"),
        (torch.zeros(4).expand(3, 4), r"'x' of shape \(3, 4\) has strides \(0, 4\)"),
        (torch.zeros(4, dtype=torch.int64), "'x' is int64 and must become int32, which needs a copy"),
    ],
)
def test_what_cannot_be_shared_is_said(leaf, message):
    with pytest.raises(TwinaxError, match=message):
        bridge.to_jax({"x": leaf}, copy=False)


def test_read_only_memory_is_not_shared():
    host = aligned(64)
    host.flags.writeable = False
    with pytest.raises(TwinaxError, match="'x' is read-only"):
        bridge.to_torch({"x": host}, copy=False)
    with pytest.raises(TwinaxError, match="'x' cannot be shared"):
        bridge.to_jax({"x": host}, copy=False)


def test_narrowing_is_reported_once_for_the_whole_tree(unchecked):
    tree = {"action": torch.tensor([1, 2]), "value": np.ones(2), "mask": torch.tensor([True, False])}
    with pytest.warns(bridge.NarrowingWarning) as caught:
        out = bridge.to_jax(tree)
    assert len(caught) == 1
    text = str(caught[0].message)
    assert "action (int64 to int32)" in text and "value (float64 to float32)" in text and "mask" not in text
    assert out["action"].dtype == jnp.int32
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bridge.to_jax(tree, narrow="allow")
    with pytest.raises(TwinaxError, match="narrowed to 32 bits: action"):
        bridge.to_jax(tree, narrow="refuse")
    with pytest.raises(UnknownName, match="refuse"):
        bridge.to_jax(tree, narrow="maybe")  # pyright: ignore[reportArgumentType]


def test_nothing_is_narrowed_in_double_precision(double_precision):
    out = bridge.to_jax({"action": torch.tensor([2**40]), "value": np.ones(2)})
    assert out["action"].dtype == jnp.int64 and int(out["action"][0]) == 2**40 and out["value"].dtype == jnp.float64


@pytest.mark.parametrize("value", [torch.tensor([1, 2**40]), np.asarray(1e300), 2**40])
def test_values_that_do_not_fit_are_refused(value):
    with pytest.raises(TwinaxError, match=r"'x' holds 1.*, which does not fit (int32|float32)"):
        bridge.to_jax({"x": value}, narrow="allow")


@pytest.mark.parametrize("convert", [bridge.to_jax, bridge.to_torch, bridge.to_numpy])
@pytest.mark.parametrize(
    ("leaf", "message"),
    [
        ("text", "'a.1' is a builtins.str"),
        (object(), "'a.1' is a builtins.object"),
        (torch.nn.Linear(1, 1), "'a.1' is a torch.nn.modules.linear.Linear.*state_dict"),
        (Unregistered(1.0), "'a.1' is a .*Unregistered.*register_dataclass"),
        (np.array(["x"]), "'a.1' has dtype <U1"),
        (np.ma.masked_array([1.0], [True]), "'a.1' is a numpy.ma.*MaskedArray"),
    ],
)
def test_unknown_leaves_are_named(convert, leaf, message):
    with pytest.raises(TwinaxError, match=message):
        convert({"a": [1.0, leaf]})


def test_keys_sparse_tensors_and_traced_values_are_refused():
    with pytest.raises(TwinaxError, match="'key' is a JAX random key"):
        bridge.to_torch({"key": jax.random.key(0)})
    with pytest.raises(TwinaxError, match="'x' is a torch.sparse_coo tensor"):
        bridge.to_jax({"x": torch.eye(2).to_sparse()})
    with pytest.raises(TwinaxError, match="the array is being traced"):
        jax.jit(lambda x: bridge.to_torch(x).sum())(jnp.ones(2))
