"""Training steps per second of torchgfn 2.4.1 on GFlowNet worlds (a peer: run in its own virtual environment).

usage: torchgfn_worlds.py CASE BATCH STEPS
CASE: bitseq or dag

The environment: Python 3.11 with torch==2.13.0 torch_geometric numpy==1.26.4 tensordict einops dill
linear-attention-transformer "pandas<3" "scipy<1.16", and torchgfn==2.4.1 with --no-deps.

Prints a line when it is ready; for every line on its standard input it makes STEPS steps and prints the steps of a
second. Environments, scores, samplers, estimators, uniform backward policies and losses are torchgfn's own; the
networks are written here to be those of twinax, layer by layer. Its bit sequences end with an action of their own, one
more than twinax has. Its graphs stop with probability 1/2 at first, not with that of any one edge, and a step over
short trajectories is several times as fast: so it trains for a while before it is measured, until they have about the
length of those of twinax, and every turn goes on from there.
"""

from __future__ import annotations

import copy
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import torch
from measuring import rates, serve
from torch import nn

case, batch, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])


def attention(width, heads, hidden, layers):
    """Layers of attention with norms first, and a last norm."""
    layer = nn.TransformerEncoderLayer(width, heads, hidden, dropout=0.0, batch_first=True, norm_first=True)
    return nn.TransformerEncoder(layer, layers, nn.LayerNorm(width), enable_nested_tensor=False)


def waves(length, width):
    """Codes of places."""
    angle = np.arange(length)[:, None] / 10_000 ** (2 * (np.arange(width) // 2) / width)
    return torch.from_numpy(np.where(np.arange(width) % 2 == 0, np.sin(angle), np.cos(angle)).astype(np.float32))


class PlaceLogits(nn.Module):
    """A transformer of 3 layers of width 64 with the logits of each place, and one for the end."""

    input_dim = 15

    def __init__(self):
        super().__init__()
        self.tokens, self.body, self.head = nn.Embedding(258, 64), attention(64, 8, 64, 3), nn.Linear(64, 256)
        self.register_buffer("places", waves(16, 64))

    def forward(self, words):
        ids = torch.where(words < 0, 256, words)
        begin = torch.full_like(ids[..., :1], 257)
        ids = torch.cat([begin, ids], -1).reshape(-1, 16)
        x = self.body(self.tokens(ids.clamp(0, 257)) + self.places)
        logits = self.head(x[:, 1:]).flatten(1)
        return torch.cat([logits, torch.zeros_like(logits[:, :1])], -1).reshape(*words.shape[:-1], -1)


def bit_sequences():
    from gfn.estimators import DiscretePolicyEstimator
    from gfn.gflownet import TBGFlowNet
    from gfn.gym.bitSequenceNonAutoregressive import NonAutoregressiveBitSequence
    from gfn.preprocessors import IdentityPreprocessor
    from gfn.utils.modules import DiscreteUniform

    env = NonAutoregressiveBitSequence(word_size=8, seq_size=120, n_modes=60, reward_exponent=3.0)
    forward = DiscretePolicyEstimator(PlaceLogits(), n_actions=env.n_actions)
    uniform = DiscreteUniform(output_dim=env.n_actions - 1)
    seen = IdentityPreprocessor(output_dim=env.words_per_seq)
    backward = DiscretePolicyEstimator(uniform, n_actions=env.n_actions, preprocessor=seen, is_backward=True)
    model = TBGFlowNet(pf=forward, pb=backward, init_logZ=0.0)
    optimizer = torch.optim.AdamW(forward.parameters(), lr=1e-3, weight_decay=1e-5)
    optimizer.add_param_group({"params": model.logz_parameters(), "lr": 0.05, "weight_decay": 0.0})
    return env, model, optimizer


class Edges(nn.Module):
    """Messages along edges in both directions, then attention; a logit for each edge and one for stopping."""

    input_dim = 1

    def __init__(self, nodes=5, width=128, heads=4):
        super().__init__()
        self.nodes, self.width = nodes, width
        self.first, self.norm = nn.Linear(nodes, width), nn.LayerNorm(width)
        self.messages, self.body = nn.Linear(2 * width, width), attention(width, heads, width, 1)
        self.sender, self.receiver, self.stop = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, 1)

    @property
    def edges_dim(self):
        return self.nodes**2

    def forward(self, graphs):
        from gfn.actions import GraphActions, GraphActionType
        from tensordict import TensorDict

        number, nodes = len(graphs), self.nodes
        source, target = graphs.edge_index
        edges = torch.zeros(number, nodes, nodes)
        edges[source // nodes, source % nodes, target % nodes] = 1 / nodes
        x = self.first(torch.eye(nodes)).expand(number, nodes, self.width)
        y = self.norm(x)
        x = self.body(x + self.messages(torch.cat([edges @ y, edges.transpose(1, 2) @ y], -1)))
        logits = (self.sender(x) @ self.receiver(x).transpose(1, 2) / self.width**0.5).flatten(1)
        stop = self.stop(x.mean(1))[:, 0]
        kind = torch.full((number, 3), -torch.inf)
        kind[:, GraphActionType.ADD_EDGE] = nn.functional.logsigmoid(-stop)
        kind[:, GraphActionType.EXIT] = nn.functional.logsigmoid(stop)
        parts = {
            GraphActions.ACTION_TYPE_KEY: kind,
            GraphActions.EDGE_CLASS_KEY: torch.zeros(number, 1),
            GraphActions.NODE_CLASS_KEY: torch.zeros(number, nodes),
            GraphActions.NODE_INDEX_KEY: torch.zeros(number, nodes),
            GraphActions.EDGE_INDEX_KEY: logits,
        }
        return TensorDict(parts, batch_size=number)


def graphs():
    import pandas as pd
    from gfn.estimators import DiscreteGraphPolicyEstimator
    from gfn.gflownet import ModifiedDBGFlowNet
    from gfn.gym.bayesian_structure import BayesianStructure
    from gfn.gym.helpers.bayesian_structure.priors import UniformPrior
    from gfn.gym.helpers.bayesian_structure.scores import BGeScore
    from gfn.utils.modules import GraphActionUniform

    i, j = np.arange(100)[:, None], np.arange(5)[None]
    data = pd.DataFrame(np.sin(1 + i * (j + 1)) + (j > 0) / 2 * np.sin(1 + i * j), columns=list("ABCDE"))
    env = BayesianStructure(n_nodes=5, state_evaluator=BGeScore(data, UniformPrior()).state_evaluator)
    forward = DiscreteGraphPolicyEstimator(module=Edges())
    uniform = GraphActionUniform(env.n_actions - 1, env.num_edge_classes, env.num_node_classes)
    backward = DiscreteGraphPolicyEstimator(module=uniform, is_backward=True)
    model = ModifiedDBGFlowNet(pf=forward, pb=backward)
    return env, model, torch.optim.Adam(forward.parameters(), lr=1e-4)


env, model, optimizer = {"bitseq": bit_sequences, "dag": graphs}[case]()
lengths = []


def train(steps):
    lengths.clear()
    for _ in range(steps):
        trajectories = model.sample_trajectories(env, n=batch, save_logprobs=False, save_estimator_outputs=False)
        optimizer.zero_grad()
        model.loss(env, model.to_training_samples(trajectories), recalculate_all_logprobs=True).backward()
        optimizer.step()
        lengths.append(float(trajectories.terminating_idx.float().mean()))


train({"bitseq": 1, "dag": 30}[case])
kept = copy.deepcopy((model.state_dict(), optimizer.state_dict()))


def turn():
    found = rates(lambda: train(steps), steps)
    model.load_state_dict(kept[0])
    optimizer.load_state_dict(copy.deepcopy(kept[1]))
    return found


turn()
count = sum(p.numel() for p in {id(p): p for p in model.parameters() if p.requires_grad}.values())
facts = {"parameters": count, "versions": f"torch {torch.__version__}", "threads": torch.get_num_threads()}
serve({**facts, "mean_length": float(np.mean(lengths))}, turn)
