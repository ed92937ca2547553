"""Writes flax.msgpack: parameters of small Flax networks, what they were given, and what they gave.

Run by hand with Flax installed (0.12); the tests only read the file.
"""

from __future__ import annotations

from pathlib import Path


def main() -> None:
    import flax.linen as nn  # pyright: ignore[reportMissingImports]
    import flax.serialization as serialization  # pyright: ignore[reportMissingImports]
    import jax
    import jax.numpy as jnp
    import numpy as np

    class Layers(nn.Module):
        widths: tuple
        final: bool = False

        @nn.compact
        def __call__(self, x):
            for i, width in enumerate(self.widths):
                x = nn.Dense(width)(x)
                if self.final or i + 1 < len(self.widths):
                    x = nn.LayerNorm()(nn.gelu(x))
            return x

    class Critic(nn.Module):
        def setup(self):
            twice = nn.vmap(Layers, variable_axes={"params": 0}, split_rngs={"params": True}, in_axes=None, axis_size=2)
            self.value_net = twice((8, 6, 1))

        def __call__(self, states, actions):
            return self.value_net(jnp.concatenate([states, actions], -1))[..., 0]

    class Blocks(nn.Module):
        width: int

        @nn.compact
        def __call__(self, x):
            x = nn.max_pool(nn.Conv(self.width, (3, 3))(x), (3, 3), (2, 2), "SAME")
            y = nn.Conv(self.width, (3, 3))(nn.relu(x))
            return x + nn.Conv(self.width, (3, 3))(nn.relu(y))

    class Pixels(nn.Module):
        def setup(self):
            self.stack_blocks = [Blocks(2), Blocks(3)]
            self.MLP_0 = Layers((4,), True)
            self.LayerNorm_0 = nn.LayerNorm()

        def __call__(self, x):
            x = x.astype(jnp.float32) / 255
            for block in self.stack_blocks:
                x = block(x)
            return self.MLP_0(self.LayerNorm_0(nn.relu(x)).reshape(len(x), -1))

    class Actor(nn.Module):
        def setup(self):
            self.encoder = Pixels()
            self.actor_net = Layers((5,), True)
            self.mean_net = nn.Dense(2)
            self.log_std_net = nn.Dense(2)

        def __call__(self, images):
            x = self.actor_net(self.encoder(images))
            return self.mean_net(x), jnp.clip(self.log_std_net(x), -5, 2)

    rng = np.random.default_rng(0)
    states, actions = (rng.normal(size=(3, n)).astype(np.float32) for n in (3, 2))
    images = rng.integers(0, 256, (3, 6, 5, 2)).astype(np.uint8)

    def shaken(variables):
        return jax.tree.map(lambda x: x + 0.2 * rng.normal(size=x.shape).astype(np.float32), variables["params"])

    critic = shaken(Critic().init(jax.random.key(0), states, actions))
    actor = shaken(Actor().init(jax.random.key(1), images))
    mean, log_std = Actor().apply({"params": actor}, images)
    content = {
        "network": {"step": 7, "params": {"modules_critic": critic, "modules_actor": actor}},
        "given": {"states": states, "actions": actions, "images": images},
        "wanted": {"critic": Critic().apply({"params": critic}, states, actions), "mean": mean, "log_std": log_std},
    }
    Path(__file__).with_name("flax.msgpack").write_bytes(serialization.to_bytes(content))


if __name__ == "__main__":
    main()
