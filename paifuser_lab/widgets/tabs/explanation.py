"""The section of an explanation: why a model or a layer is not faster."""

from ...records import Explanation
from ..section import Section

SECTION = Section("explanation", record=Explanation)
