"""Encoders of observations as steps that any runtime can follow: the convolutions of images, and perceptrons."""

from __future__ import annotations

from typing import Any

import numpy as np

from twinax.errors import TwinaxError
from twinax.exportable import Step, activation, norm, perceptron
from twinax.networks import Conv2d, GroupNorm, Impala, ResNet
from twinax.offline._encoders import OwnEncoder, StateEncoder
from twinax.ops.windows import same_padding

POOL = (3, 2)
"""Window and stride of the encoders' pools."""


def encoder_steps(name: str, network: Any) -> list[Step]:
    """What an encoder does; one of somebody's own is refused in a sentence."""
    if isinstance(network, StateEncoder):
        return perceptron(f"{name}.net", network.net)
    if isinstance(network, Impala):
        return _impala(name, network)
    if isinstance(network, ResNet):
        return _resnet(name, network)
    kind = type(network.net if isinstance(network, OwnEncoder) else network).__name__
    raise TwinaxError(
        f"the network {name} is a {kind}, which cannot be written for elsewhere: perceptrons and the encoders of this "
        "library can; run it with twinax.load(run).act"
    )


class _Images:
    """Steps on images of a known size, in the order (rows, channels, height, width)."""

    def __init__(self, name: str, shape: tuple[int, int, int], mean: float, deviation: float):
        self.size: tuple[int, ...] = shape[:2]
        arrays = {"mean": np.array(mean), "deviation": np.array(deviation)}
        self.steps = [Step("normalise", f"{name}.scaled", arrays), Step("channels_first", f"{name}.turned")]

    def add(self, step: Step) -> str:
        """One more step; its name."""
        self.steps.append(step)
        return step.name

    @property
    def last(self) -> str:
        return self.steps[-1].name

    def act(self, act: str) -> None:
        """An activation of the last step."""
        self.add(activation(self.last, act))

    def conv(self, name: str, layer: Conv2d, reads: tuple[str, ...] = ()) -> str:
        weight = np.asarray(layer.weight)
        bias = np.zeros(len(weight)) if layer.bias is None else np.asarray(layer.bias)
        border, stride, dilation = layer.padding, layer.stride, layer.dilation
        if border is None:
            border = same_padding(self.size, weight.shape[2:], stride, dilation)
        options = {"stride": stride, "dilation": dilation, "groups": layer.groups, "border": _listed(border)}
        covered = [(n - 1) * dilation + 1 for n in weight.shape[2:]]
        places = zip(self.size, border, covered, strict=True)
        self.size = tuple((n + sum(sides) - window) // stride + 1 for n, sides, window in places)
        return self.add(Step("conv", name, {"weight": weight, "bias": bias}, options, reads))

    def max_pool(self, name: str) -> str:
        window, stride = POOL
        options = {
            "window": window,
            "stride": stride,
            "border": _listed(same_padding(self.size, (window,) * 2, stride)),
        }
        self.size = tuple(-(-n // stride) for n in self.size)
        return self.add(Step("max_pool", name, options=options))

    def group_norm(self, name: str, layer: GroupNorm) -> str:
        arrays = {"weight": np.asarray(layer.weight), "bias": np.asarray(layer.bias)}
        return self.add(Step("group_norm", name, arrays, {"groups": layer.groups, "eps": layer.eps}))


def _impala(name: str, net: Impala) -> list[Step]:
    images = _Images(name, net.shape, 0.0, 255.0)
    for i, stack in enumerate(net.stacks):
        place = f"{name}.stacks.{i}"
        images.conv(f"{place}.convs.0", stack.convs[0])
        before = images.max_pool(f"{place}.pool")
        for k in range(1, len(stack.convs), 2):
            images.act("relu")
            images.conv(f"{place}.convs.{k}", stack.convs[k])
            images.act("relu")
            after = images.conv(f"{place}.convs.{k + 1}", stack.convs[k + 1])
            before = images.add(Step("add", f"{place}.sums.{k}", reads=(before, after)))
    images.act("relu")
    images.add(Step("channels_last", f"{name}.back"))
    if net.norm is not None:
        images.add(norm(f"{name}.norm", net.norm, net.stacks[-1].convs[0].weight.shape[0]))
    images.add(Step("flatten", f"{name}.flat"))
    return [*images.steps, *perceptron(f"{name}.dense", net.dense)]


def _resnet(name: str, net: ResNet) -> list[Step]:
    images = _Images(name, net.shape, 127.5, 127.5)
    images.add(Step("planes", f"{name}.coordinates", {"planes": np.moveaxis(net.coordinates, -1, 0)}))
    images.conv(f"{name}.first", net.first)
    images.group_norm(f"{name}.first_norm", net.first_norm)
    images.act("silu")
    before = images.max_pool(f"{name}.pool")
    for k, block in enumerate(net.blocks):
        before = _block(images, f"{name}.blocks.{k}", block, before)
    images.add(Step("spatial_mean", f"{name}.mean"))
    return images.steps


def _block(images: _Images, name: str, block: Any, before: str) -> str:
    size = images.size
    images.conv(f"{name}.convs.0", block.convs[0], (before,))
    images.group_norm(f"{name}.norms.0", block.norms[0])
    images.act("silu")
    images.conv(f"{name}.convs.1", block.convs[1])
    after = images.group_norm(f"{name}.norms.1", block.norms[1])
    if block.projection is not None and block.projection_norm is not None:
        images.size, halved = size, images.size
        images.conv(f"{name}.projection", block.projection, (before,))
        before = images.group_norm(f"{name}.projection_norm", block.projection_norm)
        assert images.size == halved
    images.add(Step("add", f"{name}.sum", reads=(before, after)))
    images.act("silu")
    return images.last


def _listed(border: Any) -> list[list[int]]:
    return [list(sides) for sides in border]
