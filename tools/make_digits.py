"""Make src/heterophony/data/digits.npz: the first 100 images of each class of MNIST's training set.

python tools/make_digits.py MNIST.npz [OUT.npz]

MNIST.npz is a plain file with `train_x` (60000x28x28x1 uint8) and `train_y`. Same input, same bytes.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

OUT = Path(__file__).resolve().parents[1] / "src" / "heterophony" / "data" / "digits.npz"
PER_CLASS = 100


def main(source: Path, out: Path) -> None:
    with np.load(source) as mnist:
        images, labels = mnist["train_x"], mnist["train_y"]
    if images.shape != (60000, 28, 28, 1):
        sys.exit(f"{source} does not hold MNIST's 60,000 training images, train_x is {images.shape}")
    first = [np.flatnonzero(labels == digit)[:PER_CLASS] for digit in range(10)]
    index = np.sort(np.concatenate(first))
    np.savez_compressed(out, x=images[index], y=labels[index].astype(np.uint8), index=index.astype(np.int32))
    print(f"{out.name}: {len(index)} images, {out.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) == 3 else OUT)
