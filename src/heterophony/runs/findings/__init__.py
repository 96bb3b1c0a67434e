"""What only some runs have to say, one file each: when it applies, its lines in the terminal, its JSON.

A new finding is a new file here and one line in `FIGURES` or `WARNINGS`.
"""

from __future__ import annotations

from heterophony.runs.findings import (
    conflicts,
    diverged,
    doubts,
    drift,
    gains,
    leaks,
    level_perplexities,
    levels,
    liars,
    newcomers,
    perplexities,
    refusals,
    skipped,
    slices,
    told,
    unmarked,
    unseen,
    untrained,
)
from heterophony.runs.findings.finding import Finding

# In the order in which the terminal shows them: figures come before what was sent, warnings behind it.
FIGURES: tuple[type[Finding], ...] = (
    levels.LevelAccuracies,
    slices.Slices,
    level_perplexities.LevelPerplexities,
    perplexities.Perplexities,
    drift.OverTime,
    unseen.Unseen,
    newcomers.Newcomers,
    gains.Gains,
    conflicts.Conflicts,
    told.Told,
)
WARNINGS: tuple[type[Finding], ...] = (
    unmarked.Unmarked,
    diverged.Diverged,
    skipped.Skipped,
    refusals.RefusedMessages,
    doubts.Doubted,
    liars.Liars,
    leaks.Leaks,
    untrained.Untrained,
)
ALL = FIGURES + WARNINGS
