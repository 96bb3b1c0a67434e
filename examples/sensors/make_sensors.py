"""Write sensors.npz: made-up windows of six channels by thirty users, as a phone's motion sensors give them.

The rule: activity k swings k + 1 times in a window of 64 steps, with a phase for each channel. Each user has a speed
and a strength of its own, and turns the channels by a number of places, as a phone turned in a pocket does. Numbers are
stored as int16, as sensors give them: value = stored * scale + offset, with a scale and an offset for each channel.

python make_sensors.py
"""

import numpy as np

USERS, CHANNELS, STEPS, ACTIVITIES = 30, 6, 64, ("lie", "walk", "climb", "run")


def windows_of(rng, rows):
    """Return windows and activities of one user."""
    speed, strength, turn = rng.uniform(0.8, 1.2), rng.uniform(0.5, 2.0), rng.integers(3)
    activity = rng.integers(len(ACTIVITIES), size=rows)
    time = np.arange(STEPS) / STEPS * 2 * np.pi
    phase = np.arange(CHANNELS)[:, None] + rng.uniform(0, 0.5, (rows, 1, 1))
    swing = np.sin((activity[:, None, None] + 1) * speed * time + phase)
    noise = rng.normal(scale=0.5, size=swing.shape)
    return np.roll(strength * swing + noise, turn, axis=1), activity


def main():
    rng = np.random.default_rng(7)
    counts = rng.integers(6, 60, USERS)  # some users have few windows
    parts = [windows_of(rng, rows) for rows in counts]
    values = np.concatenate([windows for windows, _ in parts])
    labels = np.concatenate([activities for _, activities in parts])
    scale, offset = np.array([0.01, 0.01, 0.01, 0.002, 0.002, 0.002]), np.array([0.1, 0.0, 9.8, 0.0, 0.0, 0.0])
    stored = np.round(values / scale[:, None]).astype(np.int16)
    activity = np.array(ACTIVITIES)[labels]
    user = np.repeat(np.arange(1, USERS + 1), counts)
    np.savez("sensors.npz", windows=stored, activity=activity, user=user, scale=scale, offset=offset)


if __name__ == "__main__":
    main()
