"""Reads models from files of other tools, without executing anything that a file holds; a program
of torch.export alone is unpickled, where it is trusted.

limits        what a file may ask for, how its names are shown, inputs made up from its shapes
tree          builds a torch module out of ONNX operators
hugging_face  folders of checkpoints that transformers wrote
gguf          language models of llama.cpp
onnx          ONNX files
pt2           programs of torch.export
aten_layers   the layers of torch.nn that operators of a program are
"""

from .limits import Imported

__all__ = ["Imported"]
