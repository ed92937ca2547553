"""Detailed balance on the 20^4 hypergrid, with the settings of the gfnx baseline of the same name.

    python baselines/db_hypergrid.py num_train_steps=1_000 logging.tqdm_print_rate=100

Any setting of `twinax train` may follow; the mathematics is in twinax/gflownet/objectives.py.
"""

from __future__ import annotations

import sys

from twinax.cli import main

SETTINGS = [
    "env=hypergrid",
    "env.dim=4",
    "env.side=20",
    "proxy=easy",  # R = 0.001 everywhere, + 0.5 in the outer quarters, + 2 in the bands
    "objective=detailed_balance",
    "policy.hidden=[256,256]",  # one trunk with heads for P_F, P_B and log F
    "policy.backward=learned",
    "exploration.epsilon=0",
    "optimizer.learning_rate=1e-3",
    "trainer.batch_size=16",
    "trainer.steps=62_500",  # a million trajectories
]

if __name__ == "__main__":
    sys.exit(main(["train", *SETTINGS, *sys.argv[1:]]))
