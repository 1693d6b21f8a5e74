"""Distillation from the original: its outputs at a temperature, the outputs of its layers, and
where these are large.
"""

from .blend import Blend, blend_of, is_blendable
from .features import Projections, attention_distance, differing, feature_distance
from .losses import Answers, Kinds, distance, divergence, kinds_of, tensors_of
from .observe import answers_of, stages
from .teacher import Lesson, Teacher

__all__ = [
    "Answers",
    "Blend",
    "Kinds",
    "Lesson",
    "Projections",
    "Teacher",
    "answers_of",
    "attention_distance",
    "blend_of",
    "differing",
    "distance",
    "divergence",
    "feature_distance",
    "is_blendable",
    "kinds_of",
    "stages",
    "tensors_of",
]
