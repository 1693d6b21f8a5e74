"""What torch's profiler saw, joined to layers: from events made by hand and from a real run."""

from __future__ import annotations

from unittest.mock import Mock

from torch.profiler import DeviceType

from paifuser_lab.profiler import recording
from paifuser_lab.profiler.recording import (  # fmt: skip
    BACKWARD,
    MARK,
    MEMORY,
    Event,
    backward_by_layer,
    bytes_held,
    kernels_by_layer,
)


def mark(layer: str, start: int, end: int, *, thread: int = 0) -> Event:
    return Event(MARK + layer, start, end, thread)


def operator(
    name: str, start: int, end: int, *, number: int = 0, sequence: int = -1, thread: int = 0
) -> Event:
    return Event(name, start, end, thread, number=number, sequence=sequence)


def memory(at: int, nbytes: int) -> Event:
    return Event(MEMORY, at, at, nbytes=nbytes)


def kernel(name: str, start: int, end: int, link: int) -> Event:
    return Event(name, start, end, link=link, is_device=True)


def test_bytes_held_are_the_most_that_lived_at_once_while_a_layer_ran() -> None:
    events = [
        mark("", 0, 100),
        mark("a", 10, 30), memory(12, 100), memory(15, 50), memory(20, -50),
        mark("b", 40, 60), memory(45, 20), memory(50, -100),
        memory(70, -20),
    ]  # fmt: skip
    assert bytes_held(events) == {"": 150, "a": 150, "b": 120}


def test_kernels_belong_to_the_layer_whose_operator_started_them() -> None:
    events = [
        mark("", 0, 100),
        mark("a", 10, 20),
        operator("conv", 12, 18, number=1),
        mark("b", 30, 40),
        operator("mm", 32, 38, number=2),
        kernel("implicit_gemm", 50, 50 + 2_000_000, link=1),
        kernel("implicit_gemm", 3_000_000, 4_000_000, link=1),
        kernel("sgemm", 5_000_000, 8_000_000, link=2),
        kernel("lost", 0, 1, link=99),
    ]
    assert kernels_by_layer(events) == {"a": {"implicit_gemm": (2, 3.0)}, "b": {"sgemm": (1, 3.0)}}


def test_the_drivers_numbers_are_not_those_of_operators() -> None:
    """A launch has the driver's number, here that of a later operator in another layer."""
    launch = Event("cudaLaunchKernel", 14, 15, number=2, link=1)
    events = [
        mark("a", 10, 20),
        operator("conv", 12, 18, number=1),
        launch,
        mark("b", 30, 40),
        operator("mm", 32, 38, number=2),
        kernel("conv_kernel", 50, 60, link=1),
        kernel("mm_kernel", 60, 70, link=2),
    ]
    assert {layer: set(ones) for layer, ones in kernels_by_layer(events).items()} == {
        "a": {"conv_kernel"},
        "b": {"mm_kernel"},
    }


FORWARD = [
    mark("", 0, 100),
    mark("a", 10, 20),
    operator("linear", 12, 18, sequence=1),
    operator("t", 13, 14, sequence=1),
    operator("addmm", 15, 17, sequence=2),
    mark("b", 30, 40),
    operator("relu", 32, 38, sequence=3),
    operator("loss", 110, 120, sequence=4),
]


def back(start: int, end: int, sequence: int, *, thread: int = 0) -> Event:
    return operator(f"{BACKWARD}: Something", start, end, sequence=sequence, thread=thread)


def test_gradients_belong_to_the_layer_whose_operator_made_them_needed() -> None:
    ms = 1_000_000
    events = [
        *FORWARD,
        back(1 * ms, 2 * ms, 4),
        back(2 * ms, 5 * ms, 3),
        back(3 * ms, 4 * ms, 3),
        back(5 * ms, 7 * ms, 2),
        back(8 * ms, 9 * ms, 1),
    ]
    assert backward_by_layer(events) == {"": 1.0, "b": 3.0, "a": 3.0}, (
        "what lies within another is not counted twice"
    )


def test_the_loss_is_not_the_last_layers() -> None:
    """An operator without a gradient bears the number of the next that has one: the loss."""
    events = [
        mark("a", 10, 20),
        operator("argmax", 12, 18, sequence=5),
        operator("loss", 30, 40, sequence=5),
    ]
    assert backward_by_layer([*events, back(1000, 2_001_000, 5)]) == {"": 2.0}


def test_on_a_device_gradients_take_what_their_kernels_take() -> None:
    ms = 1_000_000
    events = [
        *FORWARD,
        back(1 * ms, 2 * ms, 3, thread=7),
        operator("ReluBackward0", 1 * ms + 1, 2 * ms - 1, sequence=3, thread=7),
        operator("relu_backward", 1 * ms + 1, 2 * ms - 1, number=11, thread=7),
        back(2 * ms, 3 * ms, 2, thread=7),
        operator("mm", 2 * ms + 1, 3 * ms - 1, number=12, thread=7),
        kernel("relu_kernel", 4 * ms, 9 * ms, link=11),
        kernel("gemm", 9 * ms, 10 * ms, link=12),
    ]
    assert backward_by_layer(events) == {"b": 5.0, "a": 1.0}


def test_work_on_a_device_is_in_the_lane_of_its_stream_and_a_call_in_that_of_its_thread() -> None:
    facts = {"name": "gemm", "start_ns": 5, "duration_ns": 2, "start_thread_id": 3, "nbytes": 0,
             "sequence_nr": -1, "correlation_id": 4, "linked_correlation_id": 1,
             "device_index": 0, "device_resource_id": 7}  # fmt: skip
    kinds = (DeviceType.CUDA, DeviceType.CPU)
    on_device, on_host = (
        recording._event(Mock(**{f"{name}.return_value": fact for name, fact in known.items()}))
        for known in (facts | {"device_type": kind} for kind in kinds)
    )
    assert (on_device.lane, on_host.lane) == ("device 0, stream 7", "3")
    assert on_device.is_device and not on_host.is_device and on_host.end_ns == 7
