"""Write sites.npz: made-up hourly loads of twelve sites, cut into the 48 hours that are known and the 6 that follow.

The rule: a site's load is a base, a daily swing with the site's own hour of the peak, a weekly swing, and noise that
lasts for some hours. Sites with an odd number measure in other units (ten times as much). The second channel is the
temperature outside, which is the same everywhere and moves the load by the site's own factor.

python make_sites.py
"""

import numpy as np

SITES, HOURS, KNOWN, AHEAD = 12, 24 * 28, 48, 6


def site(rng, temperature, number):
    """Return the loads of one site, one an hour."""
    hour = np.arange(HOURS)
    peak, swing, weekend, factor = rng.uniform(0, 24), rng.uniform(1, 3), rng.uniform(0, 1), rng.uniform(-0.2, 0.2)
    load = 5 + swing * np.cos((hour - peak) / 24 * 2 * np.pi) - weekend * (hour // 24 % 7 >= 5)
    noise = np.zeros(HOURS)
    for now in range(1, HOURS):
        noise[now] = 0.8 * noise[now - 1] + rng.normal(scale=0.2)
    return (load + factor * temperature + noise) * (10 if number % 2 else 1)


def main():
    rng = np.random.default_rng(3)
    temperature = 10 + 5 * np.sin(np.arange(HOURS) / 24 * 2 * np.pi) + rng.normal(size=HOURS).cumsum() * 0.1
    past, ahead, sites = [], [], []
    for number in range(SITES):
        load = site(rng, temperature, number)
        for start in range(0, HOURS - KNOWN - AHEAD + 1, KNOWN + AHEAD):  # no hour is in two windows
            known, next_ = slice(start, start + KNOWN), slice(start + KNOWN, start + KNOWN + AHEAD)
            past.append([load[known], temperature[known]])
            ahead.append(load[next_] / (10 if number % 2 else 1))
            sites.append(f"site-{number:02d}")
    np.savez("sites.npz", past=np.array(past, np.float32), ahead=np.array(ahead, np.float32), site=np.array(sites))


if __name__ == "__main__":
    main()
