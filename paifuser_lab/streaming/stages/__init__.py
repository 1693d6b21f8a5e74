"""What is done with frames, on workers.

decode       frames of encoded packets and images
preprocess   a model's input: resized, normalised
infer        a model's outputs, a batch at a time
answer       what they mean: classes, boxes, masks
overlay      answers drawn onto the images; small previews
encode       frames as packets of a video
"""

from .answer import Postprocess
from .decode import Decode
from .encode import Encode
from .infer import Infer
from .overlay import Overlay, Preview
from .preprocess import Preprocess

__all__ = ["Decode", "Encode", "Infer", "Overlay", "Postprocess", "Preprocess", "Preview"]
