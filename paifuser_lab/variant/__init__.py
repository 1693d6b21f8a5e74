"""Variants: changed copies of a model, from its name and a recipe to what was measured of them.

variant            the class, and how it is saved and loaded
recipe             the steps to apply, as plain data
recipe_checks      their validation
yaml_text          recipes read and written as YAML
load               workloads by name: of the zoo, of other tools' files, of the user's functions
open               a workload by name, or a variant from a folder
model_files        files of other tools: which names mean one, where it is, whether it has changed
python_names       names of the user's own code, in modules and in files
trust              which functions named in a file are called without being trusted
apply_recipe       applies a recipe's steps to a copy and checks each
quantize           quantizes a model in one call
cache              the variants created last, the only cache of whole models
folder             the files of a saved variant
comparison         `compare`: the baseline and its variants; the session options of ONNX Runtime
trial              what is timed, and the rows that come of it
generation         `compare_generation`: text of a language model, in torch and other runtimes
live_generation    texts of a model and its variants as they grow, a few tokens of each in turn
speculation        `speculate`: a draft guesses a language model's next tokens
history            what was measured in any session, in the user's database
limit              the quality limit of a variant, and the layers or step that break it
"""

from .apply_recipe import apply, apply_as_timed
from .cache import kept_variant
from .variant import Variant

__all__ = [
    "Variant",
    "apply",
    "apply_as_timed",
    "kept_variant",
]
