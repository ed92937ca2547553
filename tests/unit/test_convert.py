"""Every layer between every two libraries: the same function in float64, and the same arrays when it comes back."""

from __future__ import annotations

import equinox as eqx
import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
import pytest

from twinax import bridge
from twinax.bridge.conversion import _convert, _layouts
from twinax.errors import TwinaxError

torch = pytest.importorskip("torch")
fl = pytest.importorskip("flax.linen")
nnx = pytest.importorskip("flax.nnx")
nn = torch.nn
LIBRARIES = ("torch", "flax", "nnx", "equinox")


@pytest.fixture(autouse=True)
def double_precision():
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


def normal(*shape):
    return np.random.default_rng(sum(shape)).normal(size=shape)


IMAGE, SERIES, ROWS, STATE = normal(2, 4, 6, 7), normal(2, 4, 9), normal(5, 4), normal(5, 3)
WORDS = normal(2, 5, 6)
LAYERS = {
    "linear": (lambda: nn.Linear(4, 4), (ROWS,)),
    "linear without bias": (lambda: nn.Linear(4, 3, bias=False), (ROWS,)),
    "conv1d": (lambda: nn.Conv1d(4, 6, 3, 2, 1, groups=2), (SERIES,)),
    "conv2d": (lambda: nn.Conv2d(4, 4, (3, 2), (2, 1), (1, 0), (1, 2)), (IMAGE,)),
    "conv2d without bias": (lambda: nn.Conv2d(4, 3, 3, padding="same", bias=False), (IMAGE,)),
    "conv_transpose1d": (lambda: nn.ConvTranspose1d(4, 4, 3, 2, 1, 1), (SERIES,)),
    "conv_transpose2d": (lambda: nn.ConvTranspose2d(4, 3, (3, 2), (2, 1), (1, 0), dilation=(1, 2)), (IMAGE,)),
    "layer_norm": (lambda: nn.LayerNorm(4, eps=0.1), (ROWS,)),
    "layer_norm without weights": (lambda: nn.LayerNorm(4, elementwise_affine=False), (ROWS,)),
    "group_norm": (lambda: nn.GroupNorm(2, 4), (IMAGE,)),
    "batch_norm": (lambda: nn.BatchNorm1d(4, eps=0.1), (ROWS,)),
    "batch_norm of images": (lambda: nn.BatchNorm2d(4), (IMAGE,)),
    "rms_norm": (lambda: nn.RMSNorm(4, eps=0.1), (ROWS,)),
    "embedding": (lambda: nn.Embedding(7, 4), (np.arange(5),)),
    "gru_cell": (lambda: nn.GRUCell(4, 3), (ROWS, STATE)),
    "gru_cell with a bias in its reset gate": (lambda: nn.GRUCell(4, 3), (ROWS, STATE)),
    "lstm_cell": (lambda: nn.LSTMCell(4, 3), (ROWS, (STATE, STATE - 1))),
    "attention": (lambda: nn.MultiheadAttention(6, 2, batch_first=True), (WORDS, WORDS + 1, WORDS - 1)),
    "attention without bias": (lambda: nn.MultiheadAttention(6, 3, bias=False, batch_first=True), (WORDS,) * 3),
}
PLACES = {"group_norm": True, "batch_norm of images": True}


def numbers(module, seed=0):
    """A module of PyTorch with numbers everywhere, biases and statistics included, in float64."""
    rng, module = np.random.default_rng(seed), module.double().eval()
    with torch.no_grad():
        for leaf in [*module.parameters(), *module.buffers()]:
            if leaf.is_floating_point():
                leaf.copy_(torch.from_numpy(rng.uniform(0.2, 1, tuple(leaf.shape)) * rng.choice([0.5, 1.5])))
    return module


def layer(name):
    """A layer; of its two biases one is zero where only their sum counts, so that nothing can be lost."""
    module = numbers(LAYERS[name][0]())
    if hasattr(module, "bias_hh"):
        module.bias_hh.data[: 6 if "reset gate" in name else None].zero_()
    return module


def attention(q, k, v, *masks, **options):
    fits = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(q.shape[-1]))
    return jnp.einsum("bhqk,bkhd->bqhd", fits, v)


def last(x):
    return np.moveaxis(x, 1, -1)


def evaluated(library, name, module, inputs):
    """What a layer gives, each library called as its own documentation says; in PyTorch's layout."""
    image = name.startswith("conv") or name in PLACES
    if library == "torch":
        out = module.eval()(*jtu.tree_map(torch.from_numpy, inputs))
        out = out[0] if name.startswith("attention") else out
        return jtu.tree_map(lambda x: x.detach().numpy(), out)
    if library == "equinox":
        if isinstance(module, tuple):
            network, state = eqx.nn.inference_mode(module[0]), module[1]
            return np.asarray(jax.vmap(lambda x: network(x, state)[0])(*inputs))
        return jtu.tree_map(np.asarray, jax.vmap(module)(*jtu.tree_map(jnp.asarray, inputs)))
    given = jtu.tree_map(lambda x: jnp.asarray(last(x) if image else x), inputs)
    if name.startswith("gru_cell"):
        given = given[::-1]
    if name == "lstm_cell":
        given = ((given[1][1], given[1][0]), given[0])
    if library == "flax":
        out = module[0].apply(module[1], *given)
    elif name.startswith("attention"):
        module = nnx.clone(module)
        module.attention_fn = attention  # that of nnx takes the softmax in float32
        out = module(*given, decode=False)
    else:
        module.eval()
        out = module(*given)
    if name.startswith("gru_cell"):
        out = out[0]
    if name == "lstm_cell":
        out = out[0][::-1]
    return jtu.tree_map(lambda x: np.moveaxis(np.asarray(x), -1, 1) if image else np.asarray(x), out)


def arrays(library, module):
    """All numbers of a module, by name."""
    if library == "torch":
        return {k: v.numpy() for k, v in module.state_dict().items() if v.is_floating_point()}
    if library == "nnx":
        module = nnx.to_pure_dict(nnx.state(module, nnx.Any(nnx.Param, nnx.BatchStat)))
    tree = module[1] if library == "flax" else module
    return {jtu.keystr(path): np.asarray(leaf) for path, leaf in jtu.tree_flatten_with_path(tree)[0]}


def close(a, b):
    for x, y in zip(jtu.tree_leaves(a), jtu.tree_leaves(b), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", LAYERS)
def test_every_layer_between_every_two_libraries(name):
    source, inputs = layer(name), LAYERS[name][1]
    wanted = evaluated("torch", name, source, inputs)
    libraries = [library for library in LIBRARIES if library != "nnx" or "reset gate" not in name]
    made = {library: bridge.convert(source, to=library, check=False).result for library in libraries}
    for here in libraries:
        close(evaluated(here, name, made[here], inputs), wanted)
        for there in libraries:
            moved = bridge.convert(made[here], into=made[there], check=False)
            close(evaluated(there, name, moved.result, inputs), wanted)
            if name == "layer_norm without weights" and here == "flax":
                with pytest.raises(TwinaxError, match="it has no weights, which would show its width"):
                    bridge.convert(made[here], to="equinox", check=False)
            elif there != "torch":
                # Built anew from here, not only filled.
                built = bridge.convert(made[here], to=there, check=False).result
                assert_equal(arrays(there, built), arrays(there, moved.result))
            back = bridge.convert(moved.result, into=made[here], check=False).result
            assert_equal(arrays(here, back), arrays(here, made[here]))


def assert_equal(a, b):
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_array_equal(a[name], b[name])


@pytest.mark.parametrize(
    ("name", "there"),
    [
        ("attention", "nnx"),
        ("attention", "flax"),
        ("batch_norm", "equinox"),
        ("batch_norm of images", "flax"),
        ("conv2d", "nnx"),
        ("embedding", "nnx"),
        ("gru_cell", "nnx"),
        ("lstm_cell", "flax"),
        ("lstm_cell", "equinox"),
        ("rms_norm", "torch"),
    ],
)
def test_the_forward_check_makes_inputs_of_its_own(name, there):
    made = bridge.convert(layer(name), to=there)
    assert made.check is not None and made.check.float64 < 1e-12 and made.check.float32 < 1e-5
    assert not made.differs and not made.lost
    assert all(row.source in str(made) and row.target in str(made) for row in made.moved)


SIZES = st.integers(1, 4)


@hypothesis.given(st.data())
@hypothesis.settings(max_examples=60)
def test_arrays_of_any_size_come_back_bit_for_bit(data):
    library = data.draw(st.sampled_from([name for name in LIBRARIES if name != "torch"]))
    kind = data.draw(st.sampled_from([kind for kind in _layouts.LAYOUTS[library] if " " not in kind]))
    i, o, k, heads, groups = (data.draw(SIZES) for _ in range(5))
    axes = int(kind[-2]) if kind.startswith("conv") else 0
    upward = "transpose" in kind
    groups = groups if not upward or library == "equinox" else 1
    shapes = {"weight": (o * groups, i) if not upward else (i * groups, o), "bias": (o * groups,)}
    shapes["weight"] += tuple(k + n for n in range(axes)) if axes else ()
    if kind.endswith("cell"):
        gates, shapes = len(_layouts.GATES[kind]), {}
        shapes = {"weight_ih": (gates * o, i), "weight_hh": (gates * o, o), "bias_ih": (gates * o,)}
        shapes["bias_hh"] = shapes["bias_ih"]
    elif kind == "attention":
        width = heads * o
        shapes = {"in_proj_weight": (3 * width, i), "in_proj_bias": (3 * width,)}
        shapes |= {"out_proj.weight": (i, width), "out_proj.bias": (i,)}
    elif kind == "batch_norm":
        shapes |= {"running_mean": (i,), "running_var": (i,)}
    ours = {name: normal(*shape) for name, shape in shapes.items()}
    layout = _layouts.LAYOUTS[library][kind]
    known = {part.ours for part in layout.parts} | set(layout.joins or {})
    ours = {name: array for name, array in _layouts.summed(ours, layout).items() if name in known}
    if (library, kind) == ("nnx", "gru_cell"):
        ours["bias_hh"][:] = 0
    settings = {"heads": heads, "groups": groups, "axes": axes, "transpose_kernel": data.draw(st.booleans())}
    back = _layouts.back(_layouts.out(ours, layout, settings), layout, settings)
    assert_equal(back, ours)


@hypothesis.given(
    st.integers(1, 3), st.integers(1, 3), st.integers(0, 2), st.integers(1, 2), st.sampled_from([1, 2]), st.booleans()
)
@hypothesis.settings(max_examples=4)
def test_transposed_convolutions_of_any_setting(k, stride, padding, dilation, groups, more):
    hypothesis.assume(padding <= dilation * (k - 1) and not (more and stride == 1))
    module = numbers(nn.ConvTranspose1d(4, 2, k, stride, padding, int(more), groups, dilation=dilation))
    for there in ("equinox", *(("nnx",) if groups == 1 else ())):
        made = bridge.convert(module, to=there, example=SERIES)
        assert made.check is not None and made.check.float64 < 1e-12
        assert made.check.shapes == (tuple(module(torch.from_numpy(SERIES)).shape),)


def test_flax_kernels_that_are_not_transposed():
    """ConvTranspose as Flax has it by default, with paddings that are words."""
    for word in ("SAME", "VALID"):
        module = nnx.ConvTranspose(4, 3, (3,), 2, padding=word, rngs=nnx.Rngs(0), param_dtype=jnp.float64)
        made = bridge.convert(module, to="equinox", example=SERIES) if word == "VALID" else None
        if word == "SAME":
            with pytest.raises(TwinaxError, match="cannot be built in Equinox"):
                bridge.convert(module, to="equinox", example=SERIES)
        else:
            assert made is not None and made.check is not None and made.check.float64 < 1e-12


def test_gradients_go_the_same_way():
    """The gradients of a loss are an array for each parameter, and become each other as parameters do."""
    source = numbers(nn.Sequential(nn.Conv2d(4, 3, 3), nn.Tanh(), nn.Flatten(), nn.Linear(60, 5), nn.LayerNorm(5)))
    (source(torch.from_numpy(IMAGE)) ** 2).sum().backward()
    wanted = {name: leaf.grad.numpy() for name, leaf in source.named_parameters()}
    network, variables = bridge.convert(source, to="flax", check=False).result
    flax_gradient = jax.grad(lambda v: (network.apply(v, last(IMAGE)) ** 2).sum())(variables)
    module = bridge.convert(source, to="equinox", check=False).result
    equinox_gradient = eqx.filter_grad(lambda m: (jax.vmap(m)(jnp.asarray(IMAGE)) ** 2).sum())(module)
    for gradient in ((network, flax_gradient), equinox_gradient):
        found = bridge.convert(gradient, into=source, check=False).result
        close({name: leaf.detach().numpy() for name, leaf in found.named_parameters()}, wanted)


@pytest.mark.parametrize("there", ["flax", "nnx"])
def test_a_square_matrix_that_is_not_turned_is_caught(there, monkeypatch):
    parts = (_layouts.Part("kernel", "weight", _layouts.SAME), _layouts.BIAS)
    monkeypatch.setitem(_layouts.LAYOUTS[there], "linear", _layouts.Layout(("Dense", "Linear"), parts))
    with pytest.raises(TwinaxError, match=r"the outputs of PyTorch and Flax .* differ by .* in float64"):
        bridge.convert(layer("linear"), to=there)


def test_gates_in_another_order_are_caught(monkeypatch):
    cell = _layouts.LAYOUTS["flax"]["lstm_cell"]
    parts = tuple(part._replace(block=(1, 0, 2, 3)[part.block]) for part in cell.parts)
    monkeypatch.setitem(_layouts.LAYOUTS["flax"], "lstm_cell", _layouts.Layout(cell.classes, parts, cell.joins))
    with pytest.raises(TwinaxError, match="differ by"):
        bridge.convert(layer("lstm_cell"), to="flax")


def test_float32_stays_float32():
    made = bridge.convert(nn.Linear(2, 3), to="equinox")
    assert made.result.weight.dtype == jnp.float32
    assert bridge.convert(made.result, to="torch").result.weight.dtype == torch.float32
    assert bridge.convert(nn.Linear(2, 3).to(torch.bfloat16), to="nnx").result.kernel.dtype == jnp.bfloat16
    assert _convert.TOLERANCE <= 1e-10
