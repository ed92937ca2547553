"""A policy as an ONNX graph, written node by node."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from twinax import __version__
from twinax.errors import UnknownName, require
from twinax.exportable import OBSERVATION, Exportable, Step

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


def _standardised(graph: Graph, step: Step, x: str) -> str:
    """With mean 0 and variance 1 over the last axis."""
    name = step.name
    mean = graph.add("ReduceMean", x, output=f"{name}.mean", axes=[-1], keepdims=1)
    centred = graph.add("Sub", x, mean, output=f"{name}.centred")
    square = graph.add("Mul", centred, centred, output=f"{name}.square")
    variance = graph.add("ReduceMean", square, output=f"{name}.variance", axes=[-1], keepdims=1)
    shifted = graph.add("Add", variance, graph.constant(f"{name}.eps", step.options["eps"]), output=f"{name}.shifted")
    return graph.add("Div", centred, graph.add("Sqrt", shifted, output=f"{name}.root"), output=f"{name}.scaled")


def _norm(graph: Graph, step: Step, x: str, out: str) -> str:
    # Written out: LayerNormalization is younger than the version that is promised here.
    scaled = _standardised(graph, step, x)
    wide = graph.add("Mul", scaled, _array(graph, step, "weight"), output=f"{step.name}.wide")
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


def _concat(graph: Graph, step: Step, *parts: str) -> str:
    *read, out = parts
    return graph.add("Concat", *read, output=out, axis=-1)


def _add(graph: Graph, step: Step, x: str, y: str, out: str) -> str:
    return graph.add("Add", x, y, output=out)


def _sphere(graph: Graph, step: Step, x: str, out: str) -> str:
    name = step.name
    square = graph.add("Mul", x, x, output=f"{name}.square")
    total = graph.add("ReduceSum", square, graph.constant(f"{name}.axis", [-1], np.int64), output=f"{name}.total")
    kept = graph.add("Max", total, graph.constant(f"{name}.least", step.options["least"]), output=f"{name}.kept")
    unit = graph.add("Div", x, graph.add("Sqrt", kept, output=f"{name}.length"), output=f"{name}.unit")
    return graph.add("Mul", unit, graph.constant(f"{name}.radius", math.sqrt(step.options["width"])), output=out)


def _planes(graph: Graph, step: Step, x: str, out: str) -> str:
    # As many copies as there are rows: of the image's own first channel nothing is left but its shape.
    name, planes = step.name, np.asarray(step.arrays["planes"])
    first = graph.add("Gather", x, graph.constant(f"{name}.first", [0], np.int64), output=f"{name}.one", axis=1)
    nothing = graph.add("Mul", first, graph.constant(f"{name}.nothing", 0.0), output=f"{name}.zeros")
    copies = graph.add("Add", nothing, graph.constant(f"{name}.planes", planes), output=f"{name}.copies")
    return graph.add("Concat", x, copies, output=out, axis=1)


def _conv(graph: Graph, step: Step, x: str, out: str) -> str:
    own, window = step.options, np.shape(step.arrays["weight"])[2:]
    read = (x, _array(graph, step, "weight"), _array(graph, step, "bias"))
    sides = {"strides": [own["stride"]] * 2, "dilations": [own["dilation"]] * 2, "kernel_shape": list(window)}
    return graph.add("Conv", *read, output=out, pads=_pads(step), group=own["groups"], **sides)


def _max_pool(graph: Graph, step: Step, x: str, out: str) -> str:
    sides = {"strides": [step.options["stride"]] * 2, "kernel_shape": [step.options["window"]] * 2}
    return graph.add("MaxPool", x, output=out, pads=_pads(step), **sides)


def _pads(step: Step) -> list[int]:
    (top, bottom), (left, right) = step.options["border"]
    return [top, left, bottom, right]


def _group_norm(graph: Graph, step: Step, x: str, out: str) -> str:
    # Written out: GroupNormalization is younger than the version that is promised here.
    name = step.name
    shape = graph.add("Shape", x, output=f"{name}.shape")
    groups = graph.constant(f"{name}.groups", [0, step.options["groups"], -1], np.int64)
    parts = graph.add("Reshape", x, groups, output=f"{name}.parts")
    scaled = graph.add("Reshape", _standardised(graph, step, parts), shape, output=f"{name}.joined")
    for kind, array in (("Mul", "weight"), ("Add", "bias")):
        constant = graph.constant(f"{name}.{array}", np.asarray(step.arrays[array])[:, None, None])
        scaled = graph.add(kind, scaled, constant, output=out if array == "bias" else f"{name}.wide")
    return scaled


def _array(graph: Graph, step: Step, name: str) -> str:
    return graph.constant(f"{step.name}.{name}", step.arrays[name])


def _turn(*order: int) -> Callable[[Graph, Step, str, str], str]:
    return lambda graph, step, x, out: graph.add("Transpose", x, output=out, perm=list(order))


WRITERS: dict[str, Callable[..., str]] = {
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
    "concat": _concat,
    "add": _add,
    "sphere": _sphere,
    "channels_first": _turn(0, 3, 1, 2),
    "channels_last": _turn(0, 2, 3, 1),
    "planes": _planes,
    "conv": _conv,
    "max_pool": _max_pool,
    "group_norm": _group_norm,
    "spatial_mean": lambda graph, step, x, out: graph.add("ReduceMean", x, output=out, axes=[2, 3], keepdims=0),
    "flatten": lambda graph, step, x, out: graph.add("Flatten", x, output=out, axis=1),
}
"""Nodes of each kind of step: (graph, step, what it reads, the name of what it gives)."""


def onnx_bytes(policy: Exportable) -> bytes:
    """The file: `observation` [batch, ...] in, `action` out: [batch, m] float32, or an index, [batch] int64."""
    require("onnx", "export", "a policy as ONNX")
    from onnx import TensorProto, checker, helper

    graph, x, outputs = Graph(), OBSERVATION, {OBSERVATION: OBSERVATION}
    for k, step in enumerate(policy.steps):
        read = [outputs[name] for name in step.reads] or [x]
        out = "action" if k == len(policy.steps) - 1 else f"{step.name}.out"
        x = outputs[step.name] = WRITERS[step.kind](graph, step, *read, out)
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
