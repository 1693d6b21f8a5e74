"""Learning from the original: its answers at a temperature, what its layers answer, and where they are large."""

from .answers import Answers, Kinds, distance, divergence, kinds_of, tensors_of
from .blending import Blend, blend_of, is_blendable
from .features import Projections, attention_distance, differing, feature_distance
from .looking import answers_of, stages
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
