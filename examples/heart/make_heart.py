"""Write heart.csv from the four files of the UCI repository: the patients of whom nothing is missing in the first ten
columns. Kinds of chest pain and of electrocardiograms become columns of 0 and 1.

python make_heart.py FOLDER    # which holds processed.cleveland.data, processed.hungarian.data, ...
"""

import csv
import sys
from pathlib import Path

HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")
NAMES = ("age", "sex", "pain", "pressure", "cholesterol", "sugar", "ecg", "max_rate", "angina", "depression")
HEAD = ["hospital", *(name for name in NAMES if name not in ("pain", "ecg"))]
HEAD += ["pain_2", "pain_3", "pain_4", "ecg_1", "ecg_2", "ill"]


def rows_of(folder, hospital):
    """Yield the rows of a hospital as the table has them."""
    for line in Path(folder, f"processed.{hospital}.data").read_text().split():
        words = line.split(",")
        if not {"?", "-9", "-9.0"}.isdisjoint(words[:10]):
            continue
        patient = {name: float(word) for name, word in zip(NAMES, words, strict=False)}
        row = {"hospital": hospital, "ill": int(float(words[13]) > 0)}
        row |= {f"pain_{kind}": int(patient["pain"] == kind) for kind in (2, 3, 4)}
        row |= {f"ecg_{kind}": int(patient["ecg"] == kind) for kind in (1, 2)}
        yield row | {name: f"{value:g}" for name, value in patient.items() if name in HEAD}


def main(folder):
    with open("heart.csv", "w", newline="") as file:
        table = csv.DictWriter(file, HEAD, lineterminator="\n")
        table.writeheader()
        for hospital in HOSPITALS:
            table.writerows(rows_of(folder, hospital))


if __name__ == "__main__":
    main(*sys.argv[1:])
