"""A policy as an ONNX graph, written node by node."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from twinax import __version__
from twinax.errors import UnknownName, require
from twinax.exportable import Exportable, Step

OPSET, IR_VERSION = 13, 8
"""Old enough for the runtimes on small boards: onnxruntime reads these since 1.10."""


class Graph:
    """Nodes one after the other; each is named after what it computes."""

    def __init__(self):
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, name: str, value: Any, kind: Any = np.float32) -> str:
        """A named array."""
        from onnx import numpy_helper

        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(value, kind).reshape(np.shape(value)), name))
        return name

    def add(self, kind: str, *inputs: str, output: str, **attributes: Any) -> str:
        """A node; the name of what it computes."""
        from onnx import helper

        self.nodes.append(helper.make_node(kind, list(inputs), [output], name=output, **attributes))
        return output


def _silu(graph: Graph, x: str, name: str) -> str:
    return graph.add("Mul", x, graph.add("Sigmoid", x, output=f"{name}.sigmoid"), output=f"{name}.silu")


def _gelu(graph: Graph, x: str, name: str) -> str:
    # x (1 + erf(x / sqrt 2)) / 2: the operator Gelu is younger than the version that is promised here.
    scaled = graph.add("Mul", x, graph.constant(f"{name}.root", 1 / math.sqrt(2)), output=f"{name}.scaled")
    error = graph.add("Erf", scaled, output=f"{name}.erf")
    one = graph.add("Add", error, graph.constant(f"{name}.one", 1.0), output=f"{name}.shifted")
    half = graph.add("Mul", x, graph.constant(f"{name}.half", 0.5), output=f"{name}.halved")
    return graph.add("Mul", half, one, output=f"{name}.gelu")


def _gelu_tanh(graph: Graph, x: str, name: str) -> str:
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


ACTIVATIONS: dict[str, Callable[[Graph, str, str], str]] = {
    "relu": lambda g, x, n: g.add("Relu", x, output=f"{n}.relu"),
    "leaky_relu": lambda g, x, n: g.add("LeakyRelu", x, output=f"{n}.leaky_relu", alpha=0.01),
    "tanh": lambda g, x, n: g.add("Tanh", x, output=f"{n}.tanh"),
    "elu": lambda g, x, n: g.add("Elu", x, output=f"{n}.elu", alpha=1.0),
    "silu": _silu,
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
}
"""Nodes of each activation."""


def _normalise(graph: Graph, step: Step, x: str, out: str) -> str:
    x = graph.add("Sub", x, _array(graph, step, "mean"), output=f"{step.name}.centred")
    return graph.add("Div", x, _array(graph, step, "deviation"), output=out)


def _limit(graph: Graph, step: Step, x: str, out: str) -> str:
    limit = float(step.arrays["limit"])
    bounds = [graph.constant(f"{step.name}.{n}", y) for n, y in (("lowest", -limit), ("highest", limit))]
    return graph.add("Clip", x, *bounds, output=out)


def _linear(graph: Graph, step: Step, x: str, out: str) -> str:
    if not step.options.get("inside"):
        return graph.add("Gemm", x, _array(graph, step, "weight"), _array(graph, step, "bias"), output=out, transB=1)
    turned = graph.constant(f"{step.name}.weight", np.asarray(step.arrays["weight"]).T)
    return graph.add(
        "Add", graph.add("MatMul", x, turned, output=f"{step.name}.product"), _array(graph, step, "bias"), output=out
    )


def _norm(graph: Graph, step: Step, x: str, out: str) -> str:
    # Written out: LayerNormalization is younger than the version that is promised here.
    name = step.name
    mean = graph.add("ReduceMean", x, output=f"{name}.mean", axes=[-1], keepdims=1)
    centred = graph.add("Sub", x, mean, output=f"{name}.centred")
    square = graph.add("Mul", centred, centred, output=f"{name}.square")
    variance = graph.add("ReduceMean", square, output=f"{name}.variance", axes=[-1], keepdims=1)
    shifted = graph.add("Add", variance, graph.constant(f"{name}.eps", step.options["eps"]), output=f"{name}.shifted")
    scaled = graph.add("Div", centred, graph.add("Sqrt", shifted, output=f"{name}.root"), output=f"{name}.scaled")
    wide = graph.add("Mul", scaled, _array(graph, step, "weight"), output=f"{name}.wide")
    return graph.add("Add", wide, _array(graph, step, "bias"), output=out)


def _activation(graph: Graph, step: Step, x: str, out: str) -> str:
    name = step.options["activation"]
    if name not in ACTIVATIONS:
        raise UnknownName("activation in ONNX", name, ACTIVATIONS)
    return graph.add("Identity", ACTIVATIONS[name](graph, x, step.name.rpartition(".")[0]), output=out)


def _clamp(graph: Graph, step: Step, x: str, out: str) -> str:
    above = graph.add("Max", x, _array(graph, step, "low"), output=f"{step.name}.above")
    return graph.add("Min", above, _array(graph, step, "high"), output=out)


def _stretch(graph: Graph, step: Step, x: str, out: str) -> str:
    low, high = (np.asarray(step.arrays[name]) for name in ("low", "high"))
    x = graph.add("Add", x, graph.constant(f"{step.name}.one", 1.0), output=f"{step.name}.raised")
    half = graph.constant(f"{step.name}.half_range", 0.5 * (high - low))
    x = graph.add("Mul", x, half, output=f"{step.name}.stretched")
    return graph.add("Add", x, _array(graph, step, "low"), output=out)


def _codebook(graph: Graph, step: Step, x: str, out: str) -> str:
    x = graph.add("Gather", _array(graph, step, "table"), x, output=f"{step.name}.seen", axis=0)
    x = graph.add("Transpose", x, output=f"{step.name}.channels", perm=[0, 1, 3, 2])
    return graph.add("Flatten", x, output=out, axis=1)


def _quantiles(graph: Graph, step: Step, x: str, out: str) -> str:
    x = graph.add("Unsqueeze", x, graph.constant(f"{step.name}.axis", [1], np.int64), output=f"{step.name}.row")
    return graph.add("Mul", x, _array(graph, step, "factors"), output=out)


def _split(graph: Graph, step: Step, x: str, out: str) -> str:
    shape = graph.constant(f"{step.name}.shape", [0, step.options["numbers"], -1], np.int64)
    return graph.add("Reshape", x, shape, output=out)


def _mean(graph: Graph, step: Step, x: str, out: str) -> str:
    return graph.add("ReduceMean", x, output=out, axes=[1], keepdims=0)


def _expectation(graph: Graph, step: Step, x: str, out: str) -> str:
    chances = graph.add("Softmax", x, output=f"{step.name}.chances", axis=1)
    support = graph.constant(f"{step.name}.support", np.asarray(step.arrays["support"])[:, None])
    weighed = graph.add("Mul", chances, support, output=f"{step.name}.weighed")
    return graph.add("ReduceSum", weighed, graph.constant(f"{step.name}.axis", [1], np.int64), output=out, keepdims=0)


def _argmax(graph: Graph, step: Step, x: str, out: str) -> str:
    return graph.add("ArgMax", x, output=out, axis=1, keepdims=0)


def _array(graph: Graph, step: Step, name: str) -> str:
    return graph.constant(f"{step.name}.{name}", step.arrays[name])


WRITERS: dict[str, Callable[[Graph, Step, str, str], str]] = {
    "normalise": _normalise,
    "limit": _limit,
    "linear": _linear,
    "norm": _norm,
    "activation": _activation,
    "clamp": _clamp,
    "stretch": _stretch,
    "codebook": _codebook,
    "quantiles": _quantiles,
    "split": _split,
    "mean": _mean,
    "expectation": _expectation,
    "argmax": _argmax,
}
"""Nodes of each kind of step."""


def onnx_bytes(policy: Exportable) -> bytes:
    """The file: `observation` [batch, ...] in, `action` out: [batch, m] float32, or an index, [batch] int64."""
    require("onnx", "export", "a policy as ONNX")
    from onnx import TensorProto, checker, helper

    graph, x = Graph(), "observation"
    for k, step in enumerate(policy.steps):
        x = WRITERS[step.kind](graph, step, x, "action" if k == len(policy.steps) - 1 else f"{step.name}.out")
    seen = TensorProto.INT64 if policy.steps[0].kind == "codebook" else TensorProto.FLOAT
    kind = TensorProto.INT64 if policy.discrete else TensorProto.FLOAT
    shape = ["batch"] if policy.discrete else ["batch", policy.outputs]
    made = helper.make_graph(
        graph.nodes,
        "policy",
        [helper.make_tensor_value_info("observation", seen, ["batch", *policy.shape])],
        [helper.make_tensor_value_info("action", kind, shape)],
        graph.constants,
    )
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    model.producer_name, model.producer_version = "twinax", __version__
    checker.check_model(model, full_check=True)
    return model.SerializeToString()


def session(content: bytes) -> Any:
    """An onnxruntime session on one thread: a policy is too small for more."""
    require("onnxruntime", "export", "running a policy from ONNX")
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
