"""Export models to other runtimes and formats: one file a target, one line in the registry.

    export(variant, "onnx", "model.onnx", precision="fp16")     # also lab.export: an ExportReport
    ONNXConverter(opset=17).convert(variant)                    # the same for ONNX
    exporters(work)                                             # what each target does here

registry    the targets by name
target      what a target is: it converts, and runs what it wrote
exportable  what a target takes: a model, its inputs by name, where it comes from
program     the model from tensors to tensors; captures by torch.export, guarded
export      converted, compared with the live model, timed, delivered
decoders    language models in other runtimes, behind the calls of the one in torch
named_weights  a language model's weights by name, for the files of these runtimes
delivery    an artefact moved to where it belongs, whole
exporters   each target tried with one model on this machine
onnx_file   ONNX files: opset, precision, names, metadata, external data
opset       an ONNX model rewritten for an older opset
narrow      an ONNX model in fp16 or bf16
onnx        torch's ONNX exporter, for the engines and for ONNX files
layer_parity  the first layer at which an ONNX file leaves the live model
openvino     OpenVINO's intermediate representation
torch_export captured programs
aotinductor  compiled packages
executorch   programs for phones and small devices
coreml       packages for Apple's devices
litert       files for Android and small devices
tensorrt     an ONNX file and the command that builds an engine on a GPU
gguf        language models for llama.cpp
gguf_file   GGUF files: the variant's integers, its config and tokenizer
genai       language models for ONNX Runtime GenAI
hls          C++ for FPGAs, and its emulation
lowering    captured programs in a precision; int8 as XNNPACK takes it
native      a package of AOTInductor run without Python, by a C++ program
origins     which layers a node of an ONNX file was made of
"""

from .export import ONNXConverter, export
from .exportable import Exportable
from .exporters import exporters
from .onnx import export_onnx
from .origins import Graph, Node, Part, read_graph
from .registry import TARGETS, target_names, target_of
from .target import Conversion, Target, TargetOptions

__all__ = [
    "TARGETS",
    "Conversion",
    "Exportable",
    "Graph",
    "Node",
    "ONNXConverter",
    "Part",
    "Target",
    "TargetOptions",
    "export",
    "export_onnx",
    "exporters",
    "read_graph",
    "target_names",
    "target_of",
]
