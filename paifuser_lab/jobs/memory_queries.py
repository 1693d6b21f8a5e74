"""The queries about memory, on the model with the recipe: does it fit into a limit, how its buffers
pack, and what a pool does for its calls. Built on torch.nn's global hooks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import get_ident
from typing import Any

from torch.nn.modules.module import register_module_forward_pre_hook

from ..errors import NO_RESULT, MeasureError, PaifuserError, StoppedError, stop_if_asked
from ..memory import Predictor, fits
from ..memory.fit import largest_of
from ..memory.planning import plan_memory
from ..memory.pools import pool_calls
from ..records import Fit, FitRemedy
from ..variant import apply_as_timed
from ..variant.recipe import Recipe
from .queries import QueryContext, Records, query, without_kinds

REUSE, EAGER = "reuse", "eager"  # a step; the engine that is torch itself, a default


@query("memory_fit", "fitting", "whether it fits into a memory limit", 5.0)
def _fit(context: QueryContext) -> Iterator[Records]:
    """Whether a call or a step of training fits; by the recipe's digest and whether it trains."""
    train, limit = context.options["train"], context.options["limit"]
    _check_engine(context.recipe)
    subject = context.subject(without=("pool",))  # a pool changes no buffer
    with stoppable(context.should_stop):
        fit = fits(subject, train=train, limit=limit)
        if not train:
            fit = with_reuse(fit, context)
    yield context.beside_known("memory_fit", (context.recipe.digest, train), fit)


def _check_engine(recipe: Recipe) -> None:
    """Raise if an engine runs the model: torch's tensors do not tell what it holds."""
    engines = [step.options.get("name", EAGER) for step in recipe if step.kind == "backend"]
    if engines and engines[-1] != EAGER:
        raise MeasureError(
            f"{engines[-1]} takes its memory itself, so that its peak cannot be predicted; drop "
            "the step backend to ask of the model in torch."
        )


def with_reuse(fit: Fit, context: QueryContext) -> Fit:
    """The answer with the step `reuse` among what would make more fit, if it lowers the peak."""
    recipe = context.recipe
    if any(step.kind in (REUSE, "backend") for step in recipe):
        return fit
    recipe = without_kinds(recipe, "pool").with_step({REUSE: {}})
    try:
        reused = apply_as_timed(context.work, recipe, should_stop=context.should_stop)
        predictor = Predictor(reused, fit.predicted.options)
        peak = predictor.peak(fit.predicted.batch)
    except StoppedError:
        raise
    except PaifuserError:  # a model that cannot be traced, say: nothing to offer
        return fit
    if peak.peak_bytes >= fit.predicted.peak_bytes:
        return fit
    remedy = FitRemedy(
        change="memory reused",
        how="the step reuse: activations and sums in place",
        options=fit.predicted.options,
        batch=fit.predicted.batch,
        peak_bytes=peak.peak_bytes,
        largest_batch=largest_of(predictor, fit.limit_bytes, fit.predicted.batch),
    )
    return fit.model_copy(update={"remedies": (*fit.remedies, remedy)})


@query("memory_plan", "packing", "how the buffers of a call pack", 3.0)
def _plan(context: QueryContext) -> Iterator[Records]:
    """The buffers of a call packed into one arena, by the recipe's digest."""
    subject = context.subject(without=("pool",))
    with stoppable(context.should_stop):
        plan = plan_memory(subject)
    yield context.beside_known("memory_plan", context.recipe.digest, plan)


@query("memory_pool", "pooling", "what a memory pool spares a call", 2.0)
def _pool(context: QueryContext) -> Iterator[Records]:
    """The page faults of a call with a pool and without it, by the recipe without its pool."""
    pools = (step.options.get("limit") for step in context.recipe if step.kind == "pool")
    subject = context.subject(without=("pool",))
    counted = pool_calls(subject, next(pools, None), should_stop=context.should_stop)
    yield context.beside_known("memory_pool", pool_key(context.recipe), counted)


def pool_key(recipe: Recipe) -> str:
    """The recipe without the step pool: what is counted is the same with it and without."""
    return without_kinds(recipe, "pool").digest


class _Stop(BaseException):
    """Passes whatever catches errors of the model on its way out of a prediction."""


@contextmanager
def stoppable(should_stop: Callable[[], bool]) -> Iterator[None]:
    """End what this thread runs before the next layer of a model, and raise StoppedError for it."""
    stop_if_asked(should_stop)
    thread = get_ident()

    def check(layer: Any, args: Any) -> None:
        if get_ident() == thread and should_stop():
            raise _Stop

    handle = register_module_forward_pre_hook(check)
    try:
        yield
    except _Stop:
        raise StoppedError(NO_RESULT) from None
    finally:
        handle.remove()
