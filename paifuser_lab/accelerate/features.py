"""`lab.enable()` and its parts: one call before a training loop that stays as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, overload

from ..arguments import bytes_of, check_count
from ..errors import AccelerationError
from ..records import AccelerationStatus
from .acceleration import Acceleration
from .functions import FasterFunction, compiled_function, fused_function
from .switches import SWITCHES

Function = TypeVar("Function", bound=Callable[..., Any])
_in_force: list[Acceleration] = []  # one at most, the last one also after its end


def enable(
    *,
    precision: str | None = "auto",
    channels_last: bool = True,
    fused_optimizer: bool = True,
    memory_pool: bool = True,
    threads: bool = True,
    compile: bool = True,
    memory_limit: int | str | None = None,
) -> Acceleration:
    """Make the training loop that follows faster: every switch is tried on blocks of its steps and
    kept only if it is measured to be faster and the loss stays in its band.

        lab.enable()
        for images, labels in batches:  # the loop as it is
            ...
        lab.status()  # what is on, what was taken back, and why
        lab.disable()  # everything as before

    `precision` is "bf16", "fp16" (with scaled gradients), None, or "auto": bf16 unless this
    processor multiplies matrices slower in it than in fp32. Where the peak of memory, of the
    process or of a GPU's tensors, is above `memory_limit` ("2 GB"), the model's repeated blocks
    compute their activations again. Compiling begins only in a loop that has run for 200 steps and
    30 seconds. The loop has to run in the thread of this call.
    """
    chosen = {
        "precision": precision is not None,
        "channels_last": channels_last,
        "fused_optimizer": fused_optimizer,
        "memory_pool": memory_pool,
        "threads": threads,
        "compile": compile,
        "checkpointing": memory_limit is not None,
    }
    names = {name for name, is_chosen in chosen.items() if is_chosen}
    if not names:
        raise AccelerationError("enable() was given no switch; leave one of them on.")
    if memory_limit is not None:
        bytes_of(memory_limit)  # which raises for what is no size
    return _add("enable", names, {"precision": precision, "memory_limit": memory_limit})


def disable() -> None:
    """End all acceleration; hooks, formats, optimizers and torch's settings are as before."""
    if not _in_force or not _in_force[0].is_on:
        raise AccelerationError("Nothing is enabled; call lab.enable() before a training loop.")
    _in_force[0].stop()


def status() -> AccelerationStatus:
    """What is on or was taken back, with the deciding measurement; later, what was at the end."""
    return _in_force[0].status() if _in_force else AccelerationStatus(is_enabled=False)


def enable_memory_pool(limit: int | str | None = None) -> Acceleration:
    """Keep freed memory of the CPU for the loop's next request, if that is faster."""
    if limit is not None:
        bytes_of(limit)  # which raises for what is no size
    return _feature("memory_pool", {"limit": limit})


def disable_memory_pool() -> None:
    """Give freed memory back to the system as before."""
    _disable("memory_pool")


def enable_memory_reuse() -> Acceleration:
    """Let activation layers write into their inputs where that is proven to change nothing."""
    return _feature("memory_reuse")


def disable_memory_reuse() -> None:
    """Let activation layers write into new memory as before."""
    _disable("memory_reuse")


@overload
def enable_graph_optimization() -> Acceleration: ...
@overload
def enable_graph_optimization(function: Callable[..., Any]) -> FasterFunction: ...
def enable_graph_optimization(
    function: Callable[..., Any] | None = None,
) -> Acceleration | FasterFunction:
    """Compile the loop's model aside and race it, together with channels-last; given a function,
    return it compiled by Inductor.
    """
    if function is not None:
        return compiled_function(function)
    return _feature("graph_optimization", {"compile_now": True})


def disable_graph_optimization() -> None:
    """Run the model uncompiled and in its own memory format."""
    _disable("graph_optimization")


@overload
def enable_operator_fusion() -> Acceleration: ...
@overload
def enable_operator_fusion(function: Callable[..., Any]) -> FasterFunction: ...
def enable_operator_fusion(
    function: Callable[..., Any] | None = None,
) -> Acceleration | FasterFunction:
    """Update all weights of an optimizer in one kernel, if that is measured to be faster; given a
    function such as relu(x @ y.T + 0.5), return it with its products fused.
    """
    if function is not None:
        return fused_function(function)
    return _feature("operator_fusion")


def disable_operator_fusion() -> None:
    """Update weights operator by operator as before."""
    _disable("operator_fusion")


def enable_data_parallelism(sync_frequency: int = 1) -> Acceleration:
    """Train one model in several processes: gradients are averaged in every step, or weights every
    `sync_frequency` steps. In a single process there is nothing to do, and `lab.status()` says so.

    Start the script by `paifuser-lab train SCRIPT --processes N` or by torchrun, and let each
    process read its own part of the data.
    """
    check_count("sync_frequency", sync_frequency, error=AccelerationError)
    return _feature("data_parallelism", {"sync_frequency": sync_frequency})


def disable_data_parallelism() -> None:
    """Let each process train by itself again."""
    _disable("data_parallelism")


def enable_adaptive_lr() -> Acceleration:
    """Multiply the loop's learning rate by a factor that reacts to the losses so far."""
    return _feature("adaptive_lr")


def disable_adaptive_lr() -> None:
    """Use the loop's own learning rate."""
    _disable("adaptive_lr")


def enable_model_quantization() -> Acceleration:
    """Train with weights as int8 will hold them, so that `lab.quantize_model` costs little."""
    return _feature("model_quantization")


def disable_model_quantization() -> None:
    """Train with weights as they are."""
    _disable("model_quantization")


def _feature(name: str, options: dict[str, Any] | None = None) -> Acceleration:
    return _add(f"enable_{name}", switches_of(name), options or {})


def switches_of(feature: str) -> set[str]:
    """The switches that `enable_<feature>` turns on, as they say themselves."""
    return {name for name, kind in SWITCHES.items() if kind.feature == feature}


def _add(feature: str, names: set[str], options: dict[str, Any]) -> Acceleration:
    if _in_force and _in_force[0].yields and feature == "enable":
        _in_force[0].stop()
    if _in_force and not _in_force[0].is_on:
        _in_force.clear()
    acceleration = _in_force[0] if _in_force else Acceleration()
    acceleration.add(feature, names, options)
    if not _in_force:
        _in_force.append(acceleration)
    return acceleration


def _disable(name: str) -> None:
    held = _in_force[0] if _in_force and _in_force[0].is_on else None
    names = switches_of(name)
    if held is None or not any(names & others for others in held.features.values()):
        raise AccelerationError(
            f"{name} is not enabled; call lab.enable_{name}() before a training loop."
        )
    if set().union(*held.features.values()) <= names:
        held.stop()  # with the status as it is now, which `status` shows later
        return
    for switch in names:
        held.remove(switch)
