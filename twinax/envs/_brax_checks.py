"""What goes wrong when an environment meets Brax, said before a program is compiled."""

from __future__ import annotations

from typing import Any

from twinax import tree
from twinax.envs._jax_rules import drift
from twinax.errors import TwinaxError

BATCHED = ("VmapWrapper", "DomainRandomizationVmapWrapper", "BraxDomainRandomizationVmapWrapper")
RESTARTED = ("EpisodeWrapper", "AutoResetWrapper", "BraxAutoResetWrapper", "EvalWrapper")
PROBE = "something a wrapper adds"


def check_brax_env(env: Any, keeps_info: bool = False) -> Any:
    """The shapes of a single environment's state, or a sentence on what keeps a compiled loop from carrying it.

    With `keeps_info` also what Brax's own wrappers ask for: `step` hands on entries of `info` that it does not know.
    """
    import jax

    label = type(env).__name__
    for part in ("reset", "step", "action_size"):
        if not hasattr(type(env), part) and not hasattr(env, part):
            raise TwinaxError(f"{label} has no {part}: a Brax environment has reset, step and action_size")
    _refuse_wrappers(label, env)
    state = _traced(label, "reset", env.reset, jax.random.PRNGKey(0))
    for part in ("obs", "reward", "done", "metrics", "info"):
        if not hasattr(state, part):
            raise TwinaxError(f"{label}.reset gives a {type(state).__name__} without {part}; it must be a brax State")
    for part in ("reward", "done"):
        if shape := tuple(getattr(state, part).shape):
            raise TwinaxError(_one_only(label, f"its reset gives a {part} of shape {shape} for one key"))
    for name, x in tree.named_leaves(state).items():
        if jax.numpy.issubdtype(x.dtype, jax.dtypes.extended):
            raise TwinaxError(f"{label}: {name} is a {x.dtype}, which no file can hold; use jax.random.PRNGKey keys")
    action = jax.ShapeDtypeStruct((env.action_size,), jax.numpy.float32)
    after = _traced(label, "step", env.step, state, action, env=env)
    if sentence := drift(state, after, "after reset", "after step"):
        raise TwinaxError(f"{label}: {sentence}")
    if keeps_info:
        probed = state.replace(info={**state.info, PROBE: state.reward})
        after = _traced(label, "step", env.step, probed, action, env=env)
        if PROBE not in after.info:
            raise TwinaxError(
                f"{label}.step makes a new info and drops what Brax's wrappers keep there (steps, truncation): "
                "return state.replace(...) with {**state.info, ...}"
            )
    return state


def _refuse_wrappers(label: str, env: Any) -> None:
    inside = env
    while inside is not None:
        names = {kind.__name__ for kind in type(inside).__mro__}
        if wrappers := names & {*BATCHED}:
            raise TwinaxError(_one_only(label, f"it is wrapped in {min(wrappers)}"))
        if wrappers := names & {*RESTARTED}:
            raise TwinaxError(
                f"{label}: {min(wrappers)} would hide time limits and last observations; who plays restarts a world "
                "here, so give env.unwrapped and a time_limit"
            )
        inside = vars(inside).get("env")


def _one_only(label: str, why: str) -> str:
    return (
        f"{label} is a batch already ({why}), and it would be batched twice: Brax wants a single environment, which is "
        "mapped over keys here, so give env.unwrapped or leave the batch axis out"
    )


def _traced(label: str, rule: str, function: Any, *given: Any, env: Any = None) -> Any:
    """The shapes of what a rule gives."""
    import jax

    try:
        with jax.enable_x64(False):
            return jax.eval_shape(function, *given)
    except (jax.errors.JAXTypeError, jax.errors.JAXIndexError) as error:
        raise TwinaxError(
            f"{label}.{rule} asks for the values of arrays ({type(error).__name__}), and a traced program has none: "
            "write it with jax.numpy, jnp.where and lax.cond instead of NumPy and if, or keep it on the host as a "
            "gymnasium.Env (env=gymnasium)"
        ) from error
    except (TypeError, ValueError, IndexError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        if "vmap" in reason:
            raise TwinaxError(_one_only(label, f"its {rule} maps over an axis that one key or state lacks")) from error
        if rule == "reset":
            raise TwinaxError(f"{label}.reset fails for one key: {reason}") from error
        raise TwinaxError(
            f"{label}.step fails for an action of its own action_size, {env.action_size} numbers{_actuators(env)}: "
            f"{reason}"
        ) from error


def _actuators(env: Any) -> str:
    for holder in ("sys", "mjx_model", "mj_model"):
        number = getattr(getattr(env, holder, None), "nu", None)
        if isinstance(number, int) and number != env.action_size:
            return f" (its model has {number} actuators)"
    return ""
