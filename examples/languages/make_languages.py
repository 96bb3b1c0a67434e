"""Write two families of made-up languages, two languages each, as files of letters: python make_languages.py

A language is a table of which letter follows which. Languages of one family have most of their table in common.
Rows are 32 letters, and `y` is the letter that comes next at each place.
"""

import numpy as np

FAMILIES = {"north": ("nor", "nos"), "south": ("sal", "sur")}
LETTERS, ROWS, LENGTH = 26, 360, 32


def table(draw):
    """Return the probability of each letter after each other letter: few are likely."""
    return draw.dirichlet(np.full(LETTERS, 0.1), size=LETTERS)


def text(chances, count, draw):
    """Return so many letters of a language."""
    letters = [0]
    for _ in range(count - 1):
        letters.append(draw.choice(LETTERS, p=chances[letters[-1]]))
    return np.array(letters)


def main():
    for number, (family, languages) in enumerate(FAMILIES.items()):
        common = table(np.random.default_rng(number))
        for place, language in enumerate(languages):
            draw = np.random.default_rng([number, place])
            chances = 0.7 * common + 0.3 * table(draw)
            letters = text(chances, ROWS * LENGTH + 1, draw)
            rows = np.stack([letters[at : at + LENGTH + 1] for at in range(0, ROWS * LENGTH, LENGTH)])
            np.savez_compressed(f"{language}.npz", x=rows[:, :-1], y=rows[:, 1:])
            print(f"{language}.npz: {len(rows)} rows of the {family} family")


if __name__ == "__main__":
    main()
