"""The agents, by name."""

from __future__ import annotations

from twinax.errors import UnknownName
from twinax.offline._agent import Agent
from twinax.offline.agents.infom import InFOM
from twinax.offline.agents.infonce import CRL, TDInfoNCE
from twinax.offline.agents.iql import IQL
from twinax.offline.agents.latent import HILP, ForwardBackward
from twinax.offline.agents.rebrac import DinoReBRAC, ReBRAC

AGENTS: dict[str, type[Agent]] = {
    agent.name: agent for agent in (IQL, ReBRAC, DinoReBRAC, CRL, TDInfoNCE, ForwardBackward, HILP, InFOM)
}

__all__ = ["AGENTS", "CRL", "HILP", "IQL", "DinoReBRAC", "ForwardBackward", "InFOM", "ReBRAC", "TDInfoNCE", "agent"]


def agent(name: str) -> type[Agent]:
    """An agent's class by its name; unknown names list the known ones."""
    if name not in AGENTS:
        raise UnknownName("offline agent", name, AGENTS)
    return AGENTS[name]
