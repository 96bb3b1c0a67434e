"""A cohort whose mean is that of whole numbers of Python: what a secure sum must come to, without masks."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import torch

from heterophony import Secure
from heterophony.parts.classwise import ClassMeans
from heterophony.parts.cohort import Cohort

USUAL = Secure()


@dataclass(frozen=True)
class InTheOpen(Cohort):
    """`members` says how many had something to add at a node, whoever was lost since: the scale follows from it.

    Other nodes take ordinary means. `present` says, by round, of whom the sum is; it is of all in other rounds.
    """

    how: Secure = USUAL
    members: Mapping[str, int] = field(default_factory=dict)
    present: Mapping[int, Collection[str]] = field(default_factory=dict)

    def mean(self, node, mail, field="weights", by="examples", start=None):
        mail = [m for m in mail if m.sender in self.present.get(node.round, (m.sender,))]
        return self.together(node, mail, [getattr(m, field) for m in mail], self.shares(mail, by), start)

    def together(self, node, mail, items, shares=None, start=None):
        if node.id not in self.members:
            return super().together(node, mail, items, shares, start)
        return {name: self._mean(node, [item[name] for item in items], shares) for name in items[0]}

    def tensor(self, node, mail, field, usual=None):
        return self._mean(node, [getattr(m, field) for m in mail]).float()

    def table(self, node, tables):
        each = list(tables.values())
        means = []
        for label in range(len(each[0].counts)):
            counts = [float(table.counts[label]) for table in each]
            means.append(self._mean(node, [table.means[label] for table in each], counts))
        return ClassMeans(torch.stack(means), torch.stack([table.counts for table in each]).sum(0))

    def _mean(self, node, tensors, counts=None):
        """Return the mean by these counts, of values that were rounded as members of a secure sum round them."""
        largest = self.how.range * (1 if counts is None else self.how.most) * self.members[node.id]
        scale = 2.0 ** math.floor(math.log2(2.0 ** (self.how.bits - 2) / largest))
        counts = counts or [1.0] * len(tensors)
        sums = [0] * tensors[0].numel()
        for tensor, count in zip(tensors, counts, strict=True):
            numbers = (tensor.double().flatten() * count * scale).round().tolist()
            sums = [a + int(b) for a, b in zip(sums, numbers, strict=True)]
        found = torch.tensor(sums, dtype=torch.float64) / scale / (sum(int(count) for count in counts) or 1)
        return found.reshape(tensors[0].shape).to(tensors[0].dtype)
