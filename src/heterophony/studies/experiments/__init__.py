"""The papers' tables, one short file each, and what runs them: `heterophony reproduce NAME`."""

from heterophony.studies.experiments.experiment import Experiment, ExperimentError, shipped

__all__ = ["Experiment", "ExperimentError", "shipped"]
