"""Steps per second of torchgfn 2.4.1's trajectory balance on the hypergrid (a peer: run in its own environment).

usage: torchgfn_hypergrid.py STEPS THREADS [WEIGHTS.safetensors]

20^4, batch 16, shared trunk 256x2, learned backward policy. WEIGHTS are those of a twinax policy, so that both
libraries are timed on the same trained policy.
"""

import json
import sys
import time

import torch

steps, threads = int(sys.argv[1]), int(sys.argv[2])
torch.set_num_threads(threads)

from gfn.estimators import DiscretePolicyEstimator  # noqa: E402
from gfn.gflownet import TBGFlowNet  # noqa: E402
from gfn.gym import HyperGrid  # noqa: E402
from gfn.preprocessors import KHotPreprocessor  # noqa: E402
from gfn.samplers import Sampler  # noqa: E402
from gfn.utils.modules import MLP  # noqa: E402

presets = {"R0": 1e-3, "R1": 0.5, "R2": 2.0}
env = HyperGrid(
    ndim=4, height=20, reward_fn_str="original", reward_fn_kwargs=presets, device=torch.device("cpu"), debug=False
)
coder = KHotPreprocessor(height=20, ndim=4)
forward = MLP(input_dim=coder.output_dim, output_dim=env.n_actions, hidden_dim=256, n_hidden_layers=2)
backward = MLP(input_dim=coder.output_dim, output_dim=env.n_actions - 1, trunk=forward.trunk)
if len(sys.argv) > 3:
    from safetensors.torch import load_file

    ours = load_file(sys.argv[3])
    trunk = [m for m in forward.trunk.modules() if isinstance(m, torch.nn.Linear)]
    with torch.no_grad():
        for k, layer in enumerate(trunk):
            layer.weight.copy_(ours[f"policy.layers.{k}.weight"])
            layer.bias.copy_(ours[f"policy.layers.{k}.bias"])
        head, offset = ours["policy.layers.2.weight"], ours["policy.layers.2.bias"]
        forward.last_layer.weight.copy_(head[:5])
        forward.last_layer.bias.copy_(offset[:5])
        backward.last_layer.weight.copy_(head[5:9])
        backward.last_layer.bias.copy_(offset[5:9])
pf = DiscretePolicyEstimator(forward, env.n_actions, preprocessor=coder, is_backward=False)
pb = DiscretePolicyEstimator(backward, env.n_actions, preprocessor=coder, is_backward=True)
model = TBGFlowNet(pf=pf, pb=pb, init_logZ=float(ours["log_z"].sum()) if len(sys.argv) > 3 else 0.0)
# The step size is tiny, so that the policy stays where it is while it is timed.
rate = 1e-8
optimizer = torch.optim.Adam(model.pf_pb_parameters(), lr=rate)
optimizer.add_param_group({"params": model.logz_parameters(), "lr": 100 * rate})
sampler = Sampler(estimator=pf)


def iterate():
    trajectories = sampler.sample_trajectories(
        env, n=16, save_logprobs=False, save_estimator_outputs=False, epsilon=0.0
    )
    optimizer.zero_grad()
    model.loss_from_trajectories(env, trajectories, recalculate_all_logprobs=True).backward()
    optimizer.step()
    return trajectories.terminating_idx.float().mean().item()


lengths = [iterate() for _ in range(5)]
rates = []
for _ in range(5):
    begin = time.perf_counter()
    lengths = [iterate() for _ in range(steps)]
    rates.append(steps / (time.perf_counter() - begin))
count = sum(p.numel() for p in {id(p): p for p in [*model.pf_pb_parameters(), *model.logz_parameters()]}.values())
print(json.dumps({"rates": rates, "mean_length": sum(lengths) / steps, "parameters": count, "threads": threads}))
