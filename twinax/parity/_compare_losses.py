"""Two loss functions of one's own, one for each framework, compared on the same networks and batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax

from twinax.bridge import to_jax, to_numpy
from twinax.errors import TwinaxError, UnknownName, require
from twinax.networks import num_parameters
from twinax.parity._check import ROUNDING
from twinax.parity._counts import counts_of
from twinax.parity._differentiate import LossResult, differentiate_torch, make_differentiate_jax
from twinax.parity._hints import Evidence, likely_cause
from twinax.parity._loss_rungs import compare_gradients, compare_values
from twinax.parity._precision import precision
from twinax.parity._probes import masked_entries_probe, moved_networks, transpose_probe
from twinax.parity._report import Report
from twinax.parity._sides import widened


def compare_losses(
    loss_torch: Callable[[Any, Any], Any],
    loss_jax: Callable[[Any, Any], Any],
    networks: Any,
    batch: Any,
    tolerance: float = 1e-9,
    dtype: str = "float64",
    common_terms: bool = False,
) -> Report:
    """Values, terms and gradients by parameter of a PyTorch loss against a JAX loss, and why they differ.

    A loss is `loss(networks, batch)` and returns a scalar, a scalar and a dict of scalar terms, or a scalar and
    `twinax.Terms`, whose parts are then checked to add up to it. `networks` and
    `batch` are trees of arrays of any framework; each loss receives copies in its own. A `torch.nn.Module` stands for
    the dict of its parameters by name (as `torch.func.functional_call` takes it). Masks are boolean arrays, True
    where an entry counts. With `common_terms`, a term that only one side returns is no difference, and still helps to
    find the cause of one. JAX's 64-bit setting is left as it was.

    >>> report = compare_losses(loss_torch, loss_jax, {"weight": w}, {"x": x, "mask": mask})  # doctest: +SKIP
    >>> print(report.first_difference, report.hint)  # doctest: +SKIP
    """
    require("torch", "torch", "compare_losses")
    if dtype not in ("float32", "float64"):
        raise UnknownName("dtype", dtype, ("float32", "float64"))
    if hasattr(networks, "named_parameters"):
        networks = dict(networks.named_parameters())
    networks, batch = (widened(to_numpy(x), dtype) for x in (networks, batch))
    if not any(leaf.dtype.kind == "f" for leaf in jax.tree.leaves(networks)):
        raise TwinaxError("the networks hold no floating-point array, so there is no gradient to compare")

    in_jax = make_differentiate_jax(loss_jax, compiled=False)

    def differentiate(side: str, nets: Any, data: Any) -> LossResult:
        if side == "torch":
            return differentiate_torch(loss_torch, nets, data)
        return in_jax(*to_jax((nets, data), narrow="allow"))

    with precision(dtype):
        results = {side: differentiate(side, networks, batch) for side in ("torch", "jax")}
        values = {side: result.values for side, result in results.items()}
        gradients = {side: result.gradients for side, result in results.items()}
        rows = (
            *compare_values(results, "torch", tolerance, dtype),
            *compare_gradients(
                results, "torch", tolerance, lambda: differentiate("torch", moved_networks(networks), batch).values
            ),
        )
        if common_terms:
            odd = {
                name
                for name in (*values["torch"], *values["jax"])
                if (name in values["torch"]) != (name in values["jax"])
            }
            rows = tuple(row for row in rows if row.item not in odd)
        report = Report(rows, ("torch", "jax"), tolerance, dtype, num_parameters(networks))
        first = report.first_difference
        if first is None:
            return report
        probes = (
            masked_entries_probe(lambda side, data: differentiate(side, networks, data).values, batch, values),
            transpose_probe(lambda side, nets: differentiate(side, nets, batch).values, networks, values),
        )
        hint = likely_cause(first, Evidence(values, gradients, counts_of(batch), probes))
    if dtype == "float32" and compare_losses(loss_torch, loss_jax, networks, batch, common_terms=common_terms).ok:
        hint = ROUNDING
    return replace(report, hint=hint)
