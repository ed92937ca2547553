"""What one step computes, as one program: losses and their gradients, clipping, updates, and targets that follow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np

from twinax.errors import TwinaxError
from twinax.noise import key_draws
from twinax.port._blocks import Block, joined
from twinax.port._capture import Capture
from twinax.port._evaluate import evaluate
from twinax.port._optimizers import Rule
from twinax.port._products import quick_gradients
from twinax.port._shapes import unflatten
from twinax.port._updates import Target, Update, clipped, square_sum

Array = Any


def _is_number(x: Any) -> bool:
    """Whether it is one number that a float holds; integers stay arrays."""
    return jtu.all_leaves([x]) and jnp.ndim(x) == 0 and jnp.issubdtype(jnp.result_type(x), jnp.floating)


@dataclass(eq=False)
class StepProgram:
    """A step for batches of one kind. Its arrays lie in blocks; what a step changes is given up for what it becomes."""

    updates: Sequence[Update]
    blocks: Sequence[Block]
    captures: Mapping[int, Capture]
    """Losses that take part, by the place of their update."""
    trained: Mapping[int, Mapping[int, tuple[str, ...]]]
    """Of each such update the parameters that it moves, by block."""
    rules: Mapping[int, Mapping[int, Rule]]
    """How, by block."""
    following: Sequence[tuple[Target, Mapping[str, str]]]
    """Targets that take part, with what each of their parameters follows."""
    rebuild: Callable[[list[Array]], list[Any]]
    """The leaves of a batch from its arrays."""
    scalars: list[str] = field(default_factory=list)
    """Names of the numbers in its first result, in order."""

    def __post_init__(self):
        self.changed = sorted({name for one in self.captures.values() for name in one.program.changed})
        """Buffers that it changes."""
        read = {name for one in self.captures.values() for name in one.program.buffers.values()}
        self.kept = sorted(read - set(self.changed))
        """Buffers that it only reads."""
        self.guarded: list[str] = []
        """Names of those that have to be finite."""
        self._constants = [
            (value, value.copy())
            for one in self.captures.values()
            for value in one.program.constants.values()
            if isinstance(value, np.ndarray)
        ]
        self.run = jax.jit(self._run, donate_argnums=0)

    def is_current(self) -> bool:
        """Whether tensors that losses read beside the module and the batch still have the numbers that were compiled
        in: their memory is the person's."""
        return all(np.array_equal(now, then, equal_nan=now.dtype.kind == "f") for now, then in self._constants)

    def _run(self, moving: Any, fixed: Any, arrays: Any, numbers: Any, seed: Any, first: Any) -> Any:
        """(what changes, other parameters and buffers, the batch, the optimizers' numbers, seed, number of the first
        update) -> (numbers to show, arrays to show, what changes)."""
        blocks, memory = list(moving["blocks"]), [dict(one) for one in moving["memory"]]
        buffers = {**fixed["buffers"], **moving["buffers"]}
        parameters = dict(fixed["parameters"])
        for block, flat in zip(self.blocks, blocks, strict=True):
            parameters |= block.split(flat)
        leaves, guarded, shown = self.rebuild(arrays), [], {}
        for k, capture in self.captures.items():
            draws = key_draws(capture.program.draws, seed, (first + k).astype(jnp.int32))
            names = [name for part in self.trained[k].values() for name in part]

            def loss(moved: Any, capture=capture, draws=draws, parameters=parameters, buffers=buffers):
                with quick_gradients():
                    results, changed = evaluate(capture.program, {**parameters, **moved}, buffers, leaves, draws)
                result = unflatten(results, capture.outputs)
                value, aux = result if isinstance(result, tuple) else (result, {})
                return value.reshape(()), (aux, changed)

            moved = {name: parameters[name] for name in names}
            (value, (aux, changed)), gradients = jax.value_and_grad(loss, has_aux=True)(moved)
            flat = {b: joined([gradients[name] for name in part]) for b, part in self.trained[k].items()}
            norm = jnp.sqrt(sum((square_sum(g) for g in flat.values()), jnp.zeros(())))
            guarded += [value, norm.astype(value.dtype)]
            update = self.updates[k]
            for b, part in self.trained[k].items():
                g = clipped(flat[b], norm, update.clip_norm, update.clip_value)
                blocks[b], memory[k][b] = self._moved(k, b, part, blocks[b], g, memory[k][b], numbers[k][b])
                parameters |= self.blocks[b].split(blocks[b])
            buffers.update(changed)
            title = "" if len(self.updates) == 1 else update.title
            inside = f"{title}/" if title else ""
            own = {title or "loss": value, f"{inside}grad_norm": norm}
            if twice := sorted(own.keys() & {inside + name for name in aux}):
                raise TwinaxError(f"the loss '{update.title}' also shows something called '{twice[0]}'; rename it")
            self.guarded += own
            shown |= {**own, **{inside + name: x for name, x in aux.items()}}
        self._follow(blocks, parameters)
        fine = jnp.isfinite(jnp.stack(guarded)).all()
        made = {"blocks": blocks, "memory": memory, "buffers": {name: buffers[name] for name in self.changed}}
        kept = jax.tree.map(lambda new, old: new if new is old else jnp.where(fine, new, old), made, moving)
        scalars = {name: jnp.asarray(x) for name, x in shown.items() if _is_number(x)}
        self.scalars[:] = scalars
        packed = jnp.stack([x.astype(guarded[0].dtype) for x in (fine, *scalars.values())])
        return packed, {name: x for name, x in shown.items() if name not in scalars}, kept

    def _moved(self, k: int, b: int, part: Sequence[str], p: Array, g: Array, memory: Any, numbers: Array) -> Any:
        """A block and what is remembered of it, after an update of some or all of its parameters."""
        block, rule = self.blocks[b], self.rules[k][b]
        numbers = jnp.asarray(numbers, p.dtype)
        if len(part) == len(block.names) and numbers.ndim == 1:
            return rule.update(p, g, memory, list(numbers))
        old = {"": block.split(p), **{key: block.split(x) for key, x in memory.items()}}
        new = {key: dict(x) for key, x in old.items()}
        begin = 0
        for row, name in enumerate(part):
            size = old[""][name].size
            own = {key: old[key][name].reshape(-1) for key in memory}
            moved, own = rule.update(
                old[""][name].reshape(-1),
                g[begin : begin + size],
                own,
                list(numbers if numbers.ndim == 1 else numbers[row]),
            )
            begin += size
            for key, x in {"": moved, **own}.items():
                new[key][name] = x
        made = {key: block.join(x) for key, x in new.items()}
        return made.pop(""), made

    def _follow(self, blocks: list[Array], parameters: dict[str, Array]) -> None:
        """Targets move towards what they follow, one after the other."""
        places = {block.names: b for b, block in enumerate(self.blocks)}
        for target, pairs in self.following:
            for b, block in enumerate(self.blocks):
                if not pairs.keys() >= set(block.names):
                    continue
                sources = tuple(pairs[name] for name in block.names)
                new = blocks[places[sources]] if sources in places else joined([parameters[name] for name in sources])
                blocks[b] = new if target.tau == 1 else blocks[b] + target.tau * (new - blocks[b])
            for b, block in enumerate(self.blocks):
                parameters |= block.split(blocks[b])
