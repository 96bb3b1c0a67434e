"""Reptile: the server moves a little towards what its clients have learnt, so that a few steps fit its model to anyone.

Sent by a client: its weights after local training and the number of its examples. The adapted model is never sent.
Sent by the server: its model in every round. After every `every` rounds also the merged model, to all clients, for them
to adapt.

Paper: Nichol, Achiam and Schulman, On First-Order Meta-Learning Algorithms, 2018. Algorithm 2 (Reptile, batched
version). The clients of a round are its tasks, and the server's model moves by epsilon (`server.rate`) times the plain
mean of what local training has changed. With `server.rate = 1` it is `finetune` with plain means, to the bit.
"""

from __future__ import annotations

from typing import Any

from heterophony import Deviation, decides
from heterophony.methods.finetune import FineTune
from heterophony.parts import Cohort, NodeOptimiser

PLAIN = Cohort(weighted=False)
SLOWLY = NodeOptimiser(rate=0.5)

DEVIATIONS = (
    Deviation(
        "tasks",
        "clients, each with the rows that it has in every round",
        "the paper draws tasks of a few rows; `cohort.fraction` and `local.steps` say how many and how much here",
    ),
    Deviation("epsilon", "0.5 unless set; it may be a ramp, as in the paper's experiments", "it depends on the tasks"),
    Deviation(
        "adapting",
        "as in finetune: `adapt` epochs, after every `every` rounds",
        "the paper adapts to a new task at the end",
    ),
)


@decides("cohort.weighted", "server.kind", "server.beta1", "server.beta2", "server.tau")
def reptile(cohort: Cohort = PLAIN, server: NodeOptimiser = SLOWLY, **finetune: Any) -> FineTune:
    """Fine-tuning from a model that moves only a little in each round towards what the clients have learnt."""
    return FineTune(cohort=cohort, server=server, **finetune)
