"""FedProto: clients with different networks agree on the mean features of each class, its prototype.

Sent by a client: for each class, the mean of its features on its private rows of that class, and how many rows these
are (with `cohort.weighted = false`, whether there are any). No weights, no rows.
Sent by the server: the means of these over the clients, and which classes there are.

Paper: Tan et al., FedProto: Federated Prototype Learning across Heterogeneous Clients, AAAI 2022. Algorithm 1; Eq. 3
(prototypes), Eq. 6 (the server's mean), Eq. 7 (the loss). Features are what a network's `body` gives and its `head`
reads. The loss asks for both parts, so that it goes through the network once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Annotated

from torch import Tensor

from heterophony import (
    Counts,
    Data,
    Deviation,
    Each,
    Inbox,
    Kind,
    Mark,
    Message,
    Method,
    Node,
    NotSummable,
    Own,
    PerClass,
    Predict,
    Round,
    Send,
    Steps,
    Sum,
    by_sender,
    on,
)
from heterophony.parts import (
    ClassMeans,
    Cohort,
    Nets,
    Training,
    answers,
    by_label,
    ce,
    columns_for,
    cross_entropy,
    fits_data,
    misfit,
    of_one_shape,
    pooled,
    renewed,
    unknown,
    width_of,
)

GLOBAL = Kind("global", to="children", means=PerClass(rows="held"), held=Counts)
PROTOTYPES = Kind("prototypes", to="parent", means=PerClass(rows="counts"), counts=Counts)
Merging = Callable[[Node, Sequence[ClassMeans]], ClassMeans]

DEVIATIONS = (
    Deviation(
        "Eq. 6",
        "a mean by examples; `weighted = false` gives the plain one of the authors' code",
        "as printed it divides by the number of clients once more, and prototypes would shrink",
    ),
    Deviation(
        "Eq. 8",
        "Squared distance of each row's features from its label's prototype, mean over rows and features. A row "
        "whose class has no prototype yet adds nothing.",
        "The authors' code has it so. The paper leaves the distance open.",
    ),
    Deviation(
        "evaluation",
        "by the network's own head, not by the nearest prototype (Eq. 4)",
        "so that it compares with all other methods here",
    ),
    Deviation(
        "width",
        "`width` averages features in groups of neighbours, where networks have features of different widths; off "
        "unless set",
        "the paper's networks have one width; our shipped mixtures have not",
    ),
    Deviation(
        "classes of nobody",
        "a class that nobody in a round has keeps its prototype",
        "its last prototype is all that is known of it",
    ),
    Deviation(
        "prototypes",
        "Of the network after its local update, in evaluation mode.",
        "`Predict` is in evaluation mode everywhere. The authors' code gathers them from the batches while the "
        "network changes.",
    ),
    Deviation(
        "what does not fit",
        "The server leaves out tables of another shape than most. A client that is sent prototypes of another shape "
        "trains as if nothing were known, and notes it.",
        "The paper's networks all fit. Here settings, or somebody who lies, may bring others.",
    ),
)


class FedProto(Method):
    """Different networks whose features of a class are pulled together; only the means of features travel."""

    roles = ("server", "client")
    kinds = (GLOBAL, PROTOTYPES)
    memory = ("prototypes", "shapes", "trained", "warned")
    models = {"client": {"model": Own()}}
    headline = "personalised"
    serves = ("classification",)

    pull: Annotated[float, "lambda of Eq. 7: how strongly features are pulled to their prototype"] = 1.0
    width: Annotated[int | None, "features are averaged in so many groups; none: they are taken as they are"] = None
    cohort: Cohort = Cohort()
    local: Training = Training()
    server: Merging | None = None  # makes one table of all; none: their mean (Eq. 6), as `cohort.combine` has it

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.pull >= 0 or (self.width is not None and self.width < 1):
            raise ValueError(f"pull is a weight >= 0 and width a number >= 1, got {self.pull} and {self.width}")

    @on(Round, role="server")
    def begin(self, server: Node) -> Send:
        known = ClassMeans(*server.vars.get("prototypes", unknown()))
        return GLOBAL(self.cohort.draw(server), means=known.means, held=known.counts.clamp(max=1))

    @on(Each(GLOBAL), role="client")
    def train(self, client: Node, mail: Message) -> Steps:
        client.round = mail.round
        data, width = client.data[self.local.data], self.wide(client)
        yield from self.local.before_first_round(client, cross_entropy)
        prototypes = ClassMeans(mail.means, mail.held)
        if fits_data(prototypes, data, width):
            parts = ("model.body", "model.head")
            yield self.local.fit("model", self.near, extra=columns_for(prototypes, data.y), parts=parts, keep="own")
        else:
            if len(mail.means):
                yield misfit(client, "prototypes", mail.means.shape, (data.classes, width))
            yield self.local.fit("model", cross_entropy, keep="own")
        yield Mark("personalised")
        features = yield Predict("model.body", self.local.data)
        own = by_label(pooled(features, width), data)
        return PROTOTYPES(means=own.means, counts=self.counted(own.counts))

    def sums(self) -> Sum:
        if self.server is not None:
            raise NotSummable("the server learns from single clients' prototypes (server), so that a sum is not enough")
        return replace(self.cohort.sum(PROTOTYPES, "means", by="counts"), weighted=True)  # each class by who has it

    @on(answers(PROTOTYPES), role="server")
    def merge(self, server: Node, mail: Inbox) -> None:
        together = of_one_shape(server, by_sender(mail, lambda m: ClassMeans(m.means, self.counted(m.counts))))
        if together:
            if self.server is None:
                found = self.cohort.table(server, together)
            else:
                found = self.server(server, list(together.values()))
            before = ClassMeans(*server.vars.get("prototypes", unknown()))
            server.vars["prototypes"] = list(renewed(before, found))
        server.round += 1

    def near(self, nets: Nets, batch: Data) -> dict[str, dict[str, Tensor]]:
        """Return Eq. 7. Each row brings the prototype of its label, `mean`, and whether there is one, `heard`."""
        features = nets["model.body"](batch.x)
        logits = nets["model.head"](features)
        width = batch.mean.shape[-1]
        apart = (pooled(features, width) - batch.mean).pow(2).mean(-1)
        return {"model": {"ce": ce(logits, batch.y), "proto": self.pull * (batch.heard * apart).mean()}}

    def counted(self, counts: Tensor) -> Tensor:
        """Return how much a client's mean of each class counts: by its rows, or alike wherever there are any."""
        return counts if self.cohort.weighted else counts.clamp(max=1)

    def wide(self, client: Node) -> int:
        """Return how many numbers a prototype of this client has."""
        return width_of(client.models["model"], "FedProto", self.width)
