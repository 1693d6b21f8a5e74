"""Small ONNX files for tests."""

from __future__ import annotations

from onnx import TensorProto, helper


def matrix_file() -> bytes:
    """A product with a 4×4 weight, and ReLU."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], name="product"),
        helper.make_node("Relu", ["h"], ["y"]),
    ]
    weight = helper.make_tensor("w", TensorProto.FLOAT, [4, 4], bytes(range(64)), raw=True)
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 4])],
        [weight],
    )
    imports = [helper.make_opsetid("", 18)]
    content: bytes = helper.make_model(
        graph, opset_imports=imports, ir_version=9
    ).SerializeToString()
    return content
