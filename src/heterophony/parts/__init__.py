"""Small named parts from which methods are composed. A method imports them from here.

Each name is imported when it is first asked for. Some helpers only make sense with the name of their file:
`from heterophony.parts import schedules`, then `schedules.at(self.alpha, round)`.
"""

from typing import TYPE_CHECKING

from heterophony.base.lazy import lazily

if TYPE_CHECKING:
    from heterophony.parts.adapters import SIDES as SIDES
    from heterophony.parts.adapters import Adapt as Adapt
    from heterophony.parts.adapters import cut_to as cut_to
    from heterophony.parts.adapters import factored as factored
    from heterophony.parts.adapters import layers_of as layers_of
    from heterophony.parts.adapters import merge_into_base as merge_into_base
    from heterophony.parts.adapters import padded as padded
    from heterophony.parts.adapters import products as products
    from heterophony.parts.adapters import ranks as ranks
    from heterophony.parts.adapters import stacked as stacked
    from heterophony.parts.adapters import strength as strength
    from heterophony.parts.aggregate import average as average
    from heterophony.parts.aggregate import difference as difference
    from heterophony.parts.aggregate import dot as dot
    from heterophony.parts.aggregate import finite as finite
    from heterophony.parts.aggregate import mean as mean
    from heterophony.parts.aggregate import shifted as shifted
    from heterophony.parts.architectures import by_architecture as by_architecture
    from heterophony.parts.axes import Places as Places
    from heterophony.parts.classwise import ClassMeans as ClassMeans
    from heterophony.parts.classwise import by_label as by_label
    from heterophony.parts.classwise import columns_for as columns_for
    from heterophony.parts.classwise import counted as counted
    from heterophony.parts.classwise import fits_data as fits_data
    from heterophony.parts.classwise import merged as merged
    from heterophony.parts.classwise import of_one_shape as of_one_shape
    from heterophony.parts.classwise import renewed as renewed
    from heterophony.parts.classwise import unknown as unknown
    from heterophony.parts.classwise import usual as usual
    from heterophony.parts.clusters import Cluster as Cluster
    from heterophony.parts.clusters import Clusters as Clusters
    from heterophony.parts.cohort import Cohort as Cohort
    from heterophony.parts.cohort import answers as answers
    from heterophony.parts.cohort import as_probabilities as as_probabilities
    from heterophony.parts.combine import Combine as Combine
    from heterophony.parts.consistency import InterClientConsistency as InterClientConsistency
    from heterophony.parts.consistency import nearest as nearest
    from heterophony.parts.contrast import Contrast as Contrast
    from heterophony.parts.correlation import CollaborativeLoss as CollaborativeLoss
    from heterophony.parts.correlation import correlation_loss as correlation_loss
    from heterophony.parts.correlation import cross_correlation as cross_correlation
    from heterophony.parts.correlation import full_batches as full_batches
    from heterophony.parts.correlation import note_correlations as note_correlations
    from heterophony.parts.deep import DeepHead as DeepHead
    from heterophony.parts.deep import readable as readable
    from heterophony.parts.deep import study as study
    from heterophony.parts.engagement import engage as engage
    from heterophony.parts.engagement import release as release
    from heterophony.parts.exits import Compound as Compound
    from heterophony.parts.exits import FromTheLast as FromTheLast
    from heterophony.parts.exits import MutualExits as MutualExits
    from heterophony.parts.exits import Shallow as Shallow
    from heterophony.parts.features import features_of as features_of
    from heterophony.parts.features import head_of as head_of
    from heterophony.parts.features import misfit as misfit
    from heterophony.parts.features import pooled as pooled
    from heterophony.parts.features import width_of as width_of
    from heterophony.parts.generator import GeneratedLoss as GeneratedLoss
    from heterophony.parts.generator import Generator as Generator
    from heterophony.parts.halves import added as added
    from heterophony.parts.halves import psi_of as psi_of
    from heterophony.parts.halves import sigma_of as sigma_of
    from heterophony.parts.heads import TaughtHead as TaughtHead
    from heterophony.parts.heads import biased_width as biased_width
    from heterophony.parts.heads import grouped as grouped
    from heterophony.parts.heads import repeated as repeated
    from heterophony.parts.heads import replaced as replaced
    from heterophony.parts.heads import taught_head as taught_head
    from heterophony.parts.losses import Mutual as Mutual
    from heterophony.parts.losses import Nets as Nets
    from heterophony.parts.losses import ce as ce
    from heterophony.parts.losses import cross_entropy as cross_entropy
    from heterophony.parts.losses import distance as distance
    from heterophony.parts.losses import kl as kl
    from heterophony.parts.losses import soft_ce as soft_ce
    from heterophony.parts.losses import soft_cross_entropy as soft_cross_entropy
    from heterophony.parts.losses import soft_label_loss as soft_label_loss
    from heterophony.parts.losses import task_loss as task_loss
    from heterophony.parts.lowrank import compressed as compressed
    from heterophony.parts.lowrank import restored as restored
    from heterophony.parts.matching import Layer as Layer
    from heterophony.parts.matching import chain as chain
    from heterophony.parts.matching import orders as orders
    from heterophony.parts.matching import reordered as reordered
    from heterophony.parts.matching import units as units
    from heterophony.parts.merging import Merge as Merge
    from heterophony.parts.merging import train_beside as train_beside
    from heterophony.parts.mixing import metropolis as metropolis
    from heterophony.parts.mixing import mixed as mixed
    from heterophony.parts.mixing import note_distance as note_distance
    from heterophony.parts.mixtures import GatedOutputs as GatedOutputs
    from heterophony.parts.mixtures import MixedOutputs as MixedOutputs
    from heterophony.parts.mixtures import MixedWeights as MixedWeights
    from heterophony.parts.mixtures import named_for_clients as named_for_clients
    from heterophony.parts.mixtures import named_for_server as named_for_server
    from heterophony.parts.mutual import MutualTeaching as MutualTeaching
    from heterophony.parts.mutual import Signal as Signal
    from heterophony.parts.neighbours import Neighbours as Neighbours
    from heterophony.parts.node_optimiser import NodeOptimiser as NodeOptimiser
    from heterophony.parts.node_optimiser import move as move
    from heterophony.parts.node_optimiser import moving as moving
    from heterophony.parts.node_optimiser import update_of as update_of
    from heterophony.parts.ordered import Distilled as Distilled
    from heterophony.parts.ordered import Order as Order
    from heterophony.parts.overlap import add_learned as add_learned
    from heterophony.parts.overlap import put_aside as put_aside
    from heterophony.parts.own_loss import loss_on as loss_on
    from heterophony.parts.own_part import part_of as part_of
    from heterophony.parts.own_value import own_value as own_value
    from heterophony.parts.public import PublicRows as PublicRows
    from heterophony.parts.public import as_sent as as_sent
    from heterophony.parts.public import confidence as confidence
    from heterophony.parts.public import needed_for as needed_for
    from heterophony.parts.public import own_rows as own_rows
    from heterophony.parts.residual import follow as follow
    from heterophony.parts.residual import longest as longest
    from heterophony.parts.retention import Retention as Retention
    from heterophony.parts.retention import information as information
    from heterophony.parts.schedules import Ramp as Ramp
    from heterophony.parts.schedules import Scheduled as Scheduled
    from heterophony.parts.schedules import Stairs as Stairs
    from heterophony.parts.schedules import Warmup as Warmup
    from heterophony.parts.seen import SeenRows as SeenRows
    from heterophony.parts.seen import privacy_of as privacy_of
    from heterophony.parts.simplex import onto_simplex as onto_simplex
    from heterophony.parts.slices import Narrow as Narrow
    from heterophony.parts.slices import SliceCut as SliceCut
    from heterophony.parts.slices import by_capacity as by_capacity
    from heterophony.parts.slices import mean_by_coordinate as mean_by_coordinate
    from heterophony.parts.slices import output_rows as output_rows
    from heterophony.parts.slices import rows_of as rows_of
    from heterophony.parts.slices import taken as taken
    from heterophony.parts.soft_codes import packed as packed
    from heterophony.parts.soft_codes import quantised as quantised
    from heterophony.parts.soft_codes import unpacked as unpacked
    from heterophony.parts.spliced import Spliced as Spliced
    from heterophony.parts.staleness import Staleness as Staleness
    from heterophony.parts.static_norms import pooled_statistics as pooled_statistics
    from heterophony.parts.static_norms import put_statistics as put_statistics
    from heterophony.parts.static_norms import running_statistics as running_statistics
    from heterophony.parts.static_norms import taking_statistics as taking_statistics
    from heterophony.parts.training import Training as Training
    from heterophony.parts.transforms import Chain as Chain
    from heterophony.parts.transforms import Curved as Curved
    from heterophony.parts.transforms import Gem as Gem
    from heterophony.parts.transforms import PCGrad as PCGrad
    from heterophony.parts.transforms import Project as Project
    from heterophony.parts.transforms import Proximal as Proximal
    from heterophony.parts.transforms import Shifted as Shifted
    from heterophony.parts.transforms import Sparse as Sparse
    from heterophony.parts.two_heads import ShiftedFeatures as ShiftedFeatures
    from heterophony.parts.two_heads import TwoHeads as TwoHeads
    from heterophony.parts.updates import norm as norm
    from heterophony.parts.updates import observe as observe
    from heterophony.parts.valve import TurnedFeatures as TurnedFeatures

_NAMES = {
    "adapters": (
        "Adapt",
        "SIDES",
        "cut_to",
        "factored",
        "layers_of",
        "merge_into_base",
        "padded",
        "products",
        "ranks",
        "stacked",
        "strength",
    ),
    "aggregate": ("average", "difference", "dot", "finite", "mean", "shifted"),
    "architectures": ("by_architecture",),
    "classwise": (
        "ClassMeans",
        "of_one_shape",
        "by_label",
        "counted",
        "fits_data",
        "merged",
        "renewed",
        "columns_for",
        "unknown",
        "usual",
    ),
    "clusters": ("Cluster", "Clusters"),
    "cohort": ("Cohort", "answers", "as_probabilities"),
    "combine": ("Combine",),
    "consistency": ("InterClientConsistency", "nearest"),
    "contrast": ("Contrast",),
    "correlation": (
        "CollaborativeLoss",
        "correlation_loss",
        "cross_correlation",
        "full_batches",
        "note_correlations",
    ),
    "deep": ("DeepHead", "readable", "study"),
    "engagement": ("engage", "release"),
    "features": ("features_of", "head_of", "misfit", "pooled", "width_of"),
    "generator": ("GeneratedLoss", "Generator"),
    "halves": ("added", "psi_of", "sigma_of"),
    "heads": ("TaughtHead", "biased_width", "grouped", "repeated", "replaced", "taught_head"),
    "losses": (
        "Mutual",
        "Nets",
        "ce",
        "cross_entropy",
        "distance",
        "kl",
        "soft_ce",
        "soft_cross_entropy",
        "soft_label_loss",
        "task_loss",
    ),
    "lowrank": ("compressed", "restored"),
    "matching": ("Layer", "chain", "orders", "reordered", "units"),
    "merging": ("Merge", "train_beside"),
    "mixing": ("metropolis", "mixed", "note_distance"),
    "mixtures": ("GatedOutputs", "MixedOutputs", "MixedWeights", "named_for_clients", "named_for_server"),
    "mutual": ("MutualTeaching", "Signal"),
    "neighbours": ("Neighbours",),
    "node_optimiser": ("NodeOptimiser", "move", "moving", "update_of"),
    "overlap": ("add_learned", "put_aside"),
    "own_loss": ("loss_on",),
    "own_part": ("part_of",),
    "own_value": ("own_value",),
    "public": ("PublicRows", "as_sent", "confidence", "needed_for", "own_rows"),
    "residual": ("follow", "longest"),
    "retention": ("Retention", "information"),
    "schedules": ("Ramp", "Scheduled", "Stairs", "Warmup"),
    "seen": ("SeenRows", "privacy_of"),
    "slices": (
        "Narrow",
        "SliceCut",
        "by_capacity",
        "mean_by_coordinate",
        "output_rows",
        "rows_of",
        "taken",
    ),
    "axes": ("Places",),
    "static_norms": (
        "pooled_statistics",
        "put_statistics",
        "running_statistics",
        "taking_statistics",
    ),
    "ordered": ("Distilled", "Order"),
    "exits": ("Compound", "FromTheLast", "MutualExits", "Shallow"),
    "simplex": ("onto_simplex",),
    "soft_codes": ("packed", "quantised", "unpacked"),
    "spliced": ("Spliced",),
    "staleness": ("Staleness",),
    "training": ("Training",),
    "transforms": ("Chain", "Curved", "Gem", "PCGrad", "Project", "Proximal", "Shifted", "Sparse"),
    "two_heads": ("ShiftedFeatures", "TwoHeads"),
    "updates": ("norm", "observe"),
    "valve": ("TurnedFeatures",),
}

__all__ = sorted(name for names in _NAMES.values() for name in names)

lazily(__name__, {name: file for file, names in _NAMES.items() for name in names})
