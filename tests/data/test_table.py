"""Columns of equal length."""

import copy

import pytest
import torch
from torch.utils.data import Dataset, TensorDataset

from heterophony import Data


def test_columns_rows_and_attributes():
    data = Data(x=torch.arange(6.0).reshape(3, 2), y=torch.tensor([0, 1, 2]), classes=3)
    assert len(data) == 3
    assert data.take(torch.tensor([2, 0])).y.tolist() == [2, 0]
    more = data.with_columns(kept=torch.ones(3))
    assert more.take(torch.tensor([1])).kept.tolist() == [1.0]
    assert copy.deepcopy(data).y.tolist() == [0, 1, 2]
    with pytest.raises(AttributeError, match="no column 'z'; there are x, y"):
        _ = data.z
    with pytest.raises(ValueError, match="one length"):
        Data(x=torch.ones(3), y=torch.ones(2))


class Pairs(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, i):
        return [float(i), 1.0], i % 2


def test_from_the_users_own_data_sets():
    data = Data.of(Pairs(), classes=2)
    assert data.x.tolist() == [[0.0, 1.0], [1.0, 1.0], [2.0, 1.0], [3.0, 1.0]]
    assert data.y.tolist() == [0, 1, 0, 1]
    assert data.classes == 2
    tensors = TensorDataset(torch.ones(2, 3), torch.tensor([1, 0]))
    assert Data.of(tensors).y.tolist() == [1, 0]
    with pytest.raises(ValueError, match="empty"):
        Data.of([])
