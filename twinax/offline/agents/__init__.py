"""The agents, by name."""

from __future__ import annotations

from twinax.arguments import checked
from twinax.offline._agent import Agent
from twinax.offline.agents.goal import GCBC, GCIQL, GCIVL, HIQL, QRL
from twinax.offline.agents.infom import InFOM
from twinax.offline.agents.infonce import CRL, TDInfoNCE
from twinax.offline.agents.iql import IQL
from twinax.offline.agents.latent import HILP, ForwardBackward
from twinax.offline.agents.mbpo import MBPOReBRAC
from twinax.offline.agents.plain import BC, FQL, TD3BC
from twinax.offline.agents.rebrac import DinoReBRAC, ReBRAC
from twinax.registry import Registry

NINE = (IQL, ReBRAC, MBPOReBRAC, DinoReBRAC, CRL, TDInfoNCE, ForwardBackward, HILP, InFOM)
OTHERS = (BC, TD3BC, GCBC, GCIVL, GCIQL, HIQL, QRL, FQL)
KINDS: dict[str, type[Agent]] = {agent.name: checked(agent) for agent in (*NINE, *OTHERS)}
AGENTS = Registry("agent", KINDS)
"""Agents that learn from data, by name."""

__all__ = [
    "AGENTS",
    "BC",
    "CRL",
    "FQL",
    "GCBC",
    "GCIQL",
    "GCIVL",
    "HILP",
    "HIQL",
    "IQL",
    "QRL",
    "TD3BC",
    "DinoReBRAC",
    "ForwardBackward",
    "InFOM",
    "MBPOReBRAC",
    "ReBRAC",
    "TDInfoNCE",
    "agent",
]


def agent(name: str) -> type[Agent]:
    """An agent's class by its name or `package.module:Name`; unknown names list the known ones."""
    return AGENTS.find(name)
