"""A policy as an ONNX graph, written node by node, and the proof that onnxruntime reads it as it was meant."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from twinax import __version__
from twinax.envs import Box
from twinax.errors import TwinaxError, UnknownName, require
from twinax.ppo._policy import Policy

OPSET, IR_VERSION = 13, 8
"""Old enough for the runtimes on small boards: onnxruntime reads these since 1.10."""
TOLERANCE = 1e-5
"""Largest difference from the library's policy, as a part of the largest action that there is (or logit)."""
ROWS = 512
"""Random observations of a check."""


class _Graph:
    """Nodes one after the other; each is named after what it computes."""

    def __init__(self):
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, name: str, value: Any) -> str:
        """A named array in float32."""
        from onnx import numpy_helper

        self.constants.append(numpy_helper.from_array(np.asarray(value, np.float32), name))
        return name

    def add(self, kind: str, *inputs: str, output: str, **attributes: Any) -> str:
        """A node; the name of what it computes."""
        from onnx import helper

        self.nodes.append(helper.make_node(kind, list(inputs), [output], name=output, **attributes))
        return output


def _silu(graph: _Graph, x: str, name: str) -> str:
    return graph.add("Mul", x, graph.add("Sigmoid", x, output=f"{name}.sigmoid"), output=f"{name}.silu")


def _gelu(graph: _Graph, x: str, name: str) -> str:
    # x (1 + erf(x / sqrt 2)) / 2: the operator Gelu is younger than the version that is promised here.
    scaled = graph.add("Mul", x, graph.constant(f"{name}.root", 1 / math.sqrt(2)), output=f"{name}.scaled")
    error = graph.add("Erf", scaled, output=f"{name}.erf")
    one = graph.add("Add", error, graph.constant(f"{name}.one", 1.0), output=f"{name}.shifted")
    half = graph.add("Mul", x, graph.constant(f"{name}.half", 0.5), output=f"{name}.halved")
    return graph.add("Mul", half, one, output=f"{name}.gelu")


def _gelu_tanh(graph: _Graph, x: str, name: str) -> str:
    # x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2
    square = graph.add("Mul", x, x, output=f"{name}.square")
    bent = graph.add("Mul", square, graph.constant(f"{name}.cubic", 0.044715), output=f"{name}.bent")
    slope = graph.add("Add", bent, graph.constant(f"{name}.one", 1.0), output=f"{name}.slope")
    inner = graph.add("Mul", x, slope, output=f"{name}.inner")
    scaled = graph.add("Mul", inner, graph.constant(f"{name}.root", math.sqrt(2 / math.pi)), output=f"{name}.scaled")
    shifted = graph.add(
        "Add", graph.add("Tanh", scaled, output=f"{name}.tanh"), f"{name}.one", output=f"{name}.shifted"
    )
    half = graph.add("Mul", x, graph.constant(f"{name}.half", 0.5), output=f"{name}.halved")
    return graph.add("Mul", half, shifted, output=f"{name}.gelu_tanh")


ACTIVATIONS: dict[str, Any] = {
    "relu": lambda g, x, n: g.add("Relu", x, output=f"{n}.relu"),
    "leaky_relu": lambda g, x, n: g.add("LeakyRelu", x, output=f"{n}.leaky_relu", alpha=0.01),
    "tanh": lambda g, x, n: g.add("Tanh", x, output=f"{n}.tanh"),
    "elu": lambda g, x, n: g.add("Elu", x, output=f"{n}.elu", alpha=1.0),
    "silu": _silu,
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
}
"""Nodes of each activation."""


def onnx_bytes(policy: Policy) -> bytes:
    """The file: `observation` [batch, n] float32 in, `action` out: [batch, m] float32, or an index, [batch] int64."""
    require("onnx", "export", "a policy as ONNX")
    from onnx import TensorProto, checker, helper

    graph = _Graph()
    x = "observation"
    if policy.moments is not None:
        x = _normalised(graph, policy, x)
    for layer in policy.layers():
        weight = graph.constant(f"{layer.name}.weight", layer.weight)
        bias = graph.constant(f"{layer.name}.bias", layer.bias)
        x = graph.add("Gemm", x, weight, bias, output=layer.name, transB=1)
        if layer.activation is not None:
            if layer.activation not in ACTIVATIONS:
                raise UnknownName("activation in ONNX", layer.activation, ACTIVATIONS)
            x = ACTIVATIONS[layer.activation](graph, x, layer.name)
    _action(graph, policy, x)
    kind = TensorProto.INT64 if policy.discrete else TensorProto.FLOAT
    shape = ["batch"] if policy.discrete else ["batch", policy.outputs]
    made = helper.make_graph(
        graph.nodes,
        "policy",
        [helper.make_tensor_value_info("observation", TensorProto.FLOAT, ["batch", policy.inputs])],
        [helper.make_tensor_value_info("action", kind, shape)],
        graph.constants,
    )
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    model.producer_name, model.producer_version = "twinax", __version__
    checker.check_model(model, full_check=True)
    return model.SerializeToString()


def _normalised(graph: _Graph, policy: Policy, x: str) -> str:
    """clip((x - mean) / sqrt(variance + eps), -limit, limit), without the clip where there is no limit"""
    assert policy.moments is not None
    scaling = policy.scaling
    deviation = scaling.deviation(policy.moments.variance.astype(np.float64))
    x = graph.add("Sub", x, graph.constant("normaliser.mean", policy.moments.mean), output="centred")
    x = graph.add("Div", x, graph.constant("normaliser.deviation", deviation), output="scaled")
    if not scaling.limit:
        return x
    bounds = [graph.constant(f"normaliser.{n}", x) for n, x in (("lowest", -scaling.limit), ("highest", scaling.limit))]
    return graph.add("Clip", x, *bounds, output="normalised")


def _action(graph: _Graph, policy: Policy, x: str) -> None:
    """As `to_world`."""
    actions = policy.world.actions
    if not isinstance(actions, Box):
        graph.add("ArgMax", x, output="action", axis=1, keepdims=0)
        return
    low, high = np.array(actions.low), np.array(actions.high)
    if policy.agent.kind == "tanh":
        x = graph.add("Tanh", x, output="squashed")
        x = graph.add("Add", x, graph.constant("action.one", 1.0), output="raised")
        x = graph.add("Mul", x, graph.constant("action.half_range", 0.5 * (high - low)), output="stretched")
        graph.add("Add", x, graph.constant("action.low", low), output="action")
    else:
        x = graph.add("Max", x, graph.constant("action.low", low), output="above")
        graph.add("Min", x, graph.constant("action.high", high), output="action")


def session(content: bytes) -> Any:
    """An onnxruntime session on one thread: a policy is too small for more."""
    require("onnxruntime", "export", "running a policy from ONNX")
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def observations(policy: Policy, rows: int = ROWS) -> np.ndarray:
    """Random ones as wide as those of training; a tenth of them far beyond, where cutting off shows."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, policy.inputs))
    x[: rows // 10] *= 20.0
    if policy.moments is not None:
        x = policy.moments.mean + x * policy.scaling.deviation(policy.moments.variance)
    return x.astype(np.float32)


def difference(policy: Policy, x: np.ndarray, action: np.ndarray) -> float:
    """Largest distance of actions from those of the policy in float64, as a part of the largest that there is.

    A small action in a wide range is a difference of large numbers, so its own size would be no measure. Of two choices
    that are equally good either is right, so an index is measured by how much worse its logit is.
    """
    exact = policy.in_double()
    if policy.discrete:
        points = exact.points(x.astype(np.float64))
        chosen = np.take_along_axis(points, np.asarray(action)[:, None], -1)[:, 0]
        return float((points.max(-1) - chosen).max() / max(np.abs(points).max(), 1e-30))
    wanted = exact.act(x.astype(np.float64))
    if np.shape(action) != wanted.shape:
        raise TwinaxError(f"the exported policy gives actions of shape {np.shape(action)}, not {wanted.shape}")
    actions: Any = policy.world.actions
    bounds = np.abs([actions.low, actions.high])
    scale = max(np.abs(wanted).max(), bounds[np.isfinite(bounds)].max(initial=1e-30))
    return float(np.abs(action - wanted).max() / scale)


def refuse_if_different(policy: Policy, content: bytes) -> float:
    """Run the file's bytes on random observations, one row as well; the largest difference, if it is small enough."""
    runs, x = session(content), observations(policy)
    found = [runs.run(["action"], {"observation": rows})[0] for rows in (x, x[:1])]
    largest = max(difference(policy, x, found[0]), difference(policy, x[:1], found[1]))
    return refuse_above(policy, largest, "ONNX")


def refuse_above(policy: Policy, largest: float, form: str) -> float:
    """The difference, or an error if it is above the tolerance, which also tells what float32 alone would cost."""
    if not largest <= TOLERANCE:
        x = observations(policy)
        own = difference(policy, x, policy.act(x))
        raise TwinaxError(
            f"the policy as {form} differs from the library's by {largest:.2g} of the largest value, more than "
            f"{TOLERANCE:g} (the library's own differs by {own:.2g} between float32 and float64); nothing was written"
        )
    return largest
