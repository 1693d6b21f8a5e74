"""Reductions: zeros do not change a sum; any other one needs the whole dimension."""

from __future__ import annotations

from typing import Any

from ..label_space import Label, Labels, core
from .call import Call, rule

SUMS = ("sum", "linalg_vector_norm", "norm")


@rule(
    "sum",
    "mean",
    "amax",
    "amin",
    "max",
    "min",
    "argmax",
    "argmin",
    "var",
    "std",
    "var_mean",
    "std_mean",
    "logsumexp",
    "prod",
    "any",
    "all",
    "median",
    "linalg_vector_norm",
    "norm",
    "count_nonzero",
)
def reduce(call: Call) -> list[Labels]:
    """One value for many."""
    tensor = call.args[0]
    selected = call.argument(2 if call.name in ("linalg_vector_norm", "norm") else 1, "dim")
    dims = call.dims(None if isinstance(selected, bool) else selected, tensor.ndim)
    labels = [_left(call, label, dims) for label in call.labels(0)]
    reduced = [label for label in labels if label is not None]
    if len(call.tensors) > 1:  # the larger of two tensors is no reduction
        call.space.fix(call.labels(0) + call.labels(1), call.why)
        return [()] * len(call.results)
    return [
        tuple(_shortened(label, dims, result.ndim).expand(result.shape) for label in reduced)
        for result in call.results
    ]


def _left(call: Call, label: Label, dims: list[int]) -> Label | None:
    """The label without its reduced dimensions; None where it varied only along summed ones."""
    varied = call.space.varies(label)
    if call.name in SUMS and varied and set(varied) <= set(dims):
        call.space.consume(label)
        return None
    return call.space.keep_whole(label, dims, call.why)


def _shortened(label: Label, dims: list[int], rank: int) -> Label:
    """The label at the first position of some dimensions, which a result of a lower rank lacks."""
    first: Any = slice(0, 1) if label.ndim == rank else 0
    return label[tuple(first if d in dims else slice(None) for d in range(label.ndim))]


@rule("_softmax", "_log_softmax", "softmax", "log_softmax", "_safe_softmax")
def softmax(call: Call) -> list[Labels]:
    """Every value along the dimension depends on every other."""
    dims = call.dims(call.argument(1, "dim", -1), call.args[0].ndim)
    return [call.space.keep_all_whole(call.labels(0), dims, call.why)]


@rule(
    "max_pool2d_with_indices",
    "max_pool3d_with_indices",
    "adaptive_max_pool2d",
    "adaptive_max_pool3d",
    "avg_pool2d",
    "avg_pool3d",
    "_adaptive_avg_pool2d",
    "_adaptive_avg_pool3d",
    "adaptive_avg_pool1d",
    "max_pool1d",
    "avg_pool1d",
    "upsample_nearest1d",
    "upsample_nearest2d",
    "upsample_nearest3d",
    "_upsample_nearest_exact1d",
    "_upsample_nearest_exact2d",
    "upsample_linear1d",
    "upsample_bilinear2d",
    "upsample_trilinear3d",
    "upsample_bicubic2d",
    "_upsample_bilinear2d_aa",
    "_upsample_bicubic2d_aa",
    "reflection_pad1d",
    "reflection_pad2d",
    "reflection_pad3d",
    "replication_pad1d",
    "replication_pad2d",
    "replication_pad3d",
    "grid_sampler_2d",
    "grid_sampler_3d",
    "mkldnn_max_pool2d",
    "mkldnn_adaptive_avg_pool2d",
)
def over_space(call: Call) -> list[Labels]:
    """Pools, interpolation and padding work on each channel by itself."""
    rank = call.args[0].ndim
    spatial = 1 if "1d" in call.name else 3 if "3d" in call.name else 2
    labels = call.space.keep_all_whole(call.labels(0), range(rank - spatial, rank), call.why)
    for tensor in call.tensors[1:]:
        call.space.fix(call.known(tensor), call.why)
    return [tuple(core(label).expand(result.shape) for label in labels) for result in call.results]


@rule("im2col")
def patches(call: Call) -> list[Labels]:
    """Each channel becomes as many as a window has positions."""
    rank, result = call.args[0].ndim, call.results[0]
    labels = call.space.keep_all_whole(call.labels(0), (rank - 2, rank - 1), call.why)
    times = result.shape[-2] // call.args[0].shape[-3]
    return [
        tuple(
            core(label)[..., 0].repeat_interleave(times, -2).expand(result.shape)
            for label in labels
            if core(label).shape[-3] > 1
        )
    ]
