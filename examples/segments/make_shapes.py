"""Write shapes.npz: made-up pictures of five cameras, and for each pixel what it shows.

The rule: a picture of 24 x 24 pixels has a disc (class 1) and a square (class 2) on a dark ground (class 0); the square
lies in front. Each camera has a brightness and a noise of its own, and sees the shapes in sizes of its own.

python make_shapes.py
"""

import numpy as np

CAMERAS, SIDE = 5, 24


def picture(rng, size, light, noise):
    """Return one picture and its mask."""
    down, right = np.indices((SIDE, SIDE))
    mask = np.zeros((SIDE, SIDE), np.uint8)
    y, x = rng.integers(size, SIDE - size, 2)
    mask[(down - y) ** 2 + (right - x) ** 2 <= size**2] = 1
    y, x = rng.integers(0, SIDE - size, 2)
    mask[y : y + size, x : x + size] = 2
    shown = np.array([0.1, 0.5, 0.8])[mask] * light + rng.normal(scale=noise, size=mask.shape)
    return np.clip(shown * 255, 0, 255).astype(np.uint8), mask


def main():
    rng = np.random.default_rng(5)
    pictures, masks, cameras = [], [], []
    for camera in range(CAMERAS):
        size, light, noise = 4 + camera % 3, rng.uniform(0.5, 1.0), rng.uniform(0.02, 0.1)
        for _ in range(24 + 8 * camera):
            shown, mask = picture(rng, size, light, noise)
            pictures.append(shown[None])
            masks.append(mask)
            cameras.append(camera)
    np.savez("shapes.npz", pictures=np.array(pictures), masks=np.array(masks), camera=np.array(cameras))


if __name__ == "__main__":
    main()
