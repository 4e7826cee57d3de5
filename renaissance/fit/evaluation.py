"""Evaluation and prediction: whole data sets, each sample counted once, in index order."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten

from renaissance.assembly.misfit import check_data, explaining, refuse_samples
from renaissance.busy import EVALUATION, PREDICTION
from renaissance.data.batch import NO_TARGETS, Batch
from renaissance.data.foreign import TorchLoader
from renaissance.data.loader import Loader
from renaissance.data.rows import in_order
from renaissance.fit.failures import Located
from renaissance.hooks import Callback, CallbackList
from renaissance.progress import Progress, make_progress, resolve_verbose

if TYPE_CHECKING:
    from renaissance.assembly.build import Built
    from renaissance.task import Task

#: An evaluation or prediction that takes less is not shown unless asked for.
PATIENCE_SECONDS = 1.0


@contextmanager
def weights_of(built: Built, weights: str | None) -> Iterator[None]:
    """EMA weights in place of the raw ones, when there are any and "raw" was not asked for.

    One range pass exchanges E with W and B; the same pass afterwards restores every bit.

    Raises:
        RuntimeError: 16-bit copies of averages were written meanwhile, which that pass rounds anew.
    """
    if weights not in (None, "raw", "ema"):
        raise ValueError(f"weights = {weights!r} is not allowed; it takes 'raw', 'ema' or None")
    if weights == "ema" and not built.has_ema:
        raise ValueError("weights = 'ema', but the task keeps no average: task.ema(0.999)")
    if weights == "raw" or not built.has_ema:
        yield
        return
    built.memory.take_edits(built.module)  # the exchange rounds every copy anew
    built.updater.exchange_ema()
    try:
        yield
        edited = built.memory.edited(built.module)
    finally:
        built.updater.exchange_ema()
    if edited:
        raise RuntimeError(
            f"{', '.join(edited[:5])}: changed in place while averaged weights were evaluated, in "
            "mixed precision, where the change would be lost; make it before or afterwards, during "
            "fit in on_epoch_begin, or train in '32-true'"
        )


class Watch:
    """Tells progress and callbacks of an evaluation or a prediction.

    Args:
        what: "validation", "evaluate" or "predict": progress says it.
        callbacks: Their ``on_predict_*`` hooks are called for "predict", else ``on_test_*``.
        progress: What one sees of it.
    """

    def __init__(self, what: str, callbacks: CallbackList, progress: Progress) -> None:
        self._what, self._progress = what, progress
        kind = "predict" if what == "predict" else "test"
        self._begin = getattr(callbacks, f"on_{kind}_begin")
        self._end = getattr(callbacks, f"on_{kind}_end")
        self._batch_begin = getattr(callbacks, f"on_{kind}_batch_begin")
        self._batch_end = getattr(callbacks, f"on_{kind}_batch_end")

    def start(self, batches: int) -> None:
        """Before the first batch."""
        self._begin({})
        self._progress.start_test(self._what, batches)

    def each(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """The batches; hooks and progress run before and after each."""
        for index, batch in enumerate(batches):
            self._batch_begin(index, {})
            samples = len(batch.ids)
            yield batch
            self._progress.test_step(samples)
            self._batch_end(index, {})

    def end(self, logs: Mapping[str, float]) -> None:
        """After the last batch, with the means there are."""
        self._progress.end_test(self._what, logs)
        self._end(logs)


@contextmanager
def watching(
    task: Task, what: str, loader: Loader, callbacks: Sequence[Callback], verbose: Any
) -> Iterator[Watch]:
    """Around an evaluation by itself: a `Watch` that has started, with progress on standard error.

    It tells the task's callbacks and those given. Streams of data that is not the task's own are
    closed at the end, on an error too.

    Under "auto" nothing is shown of what takes less than a second. While a fit is running its
    callbacks, which may be what asks for this, are not told.

    Raises:
        TypeError, ValueError: See `CallbackList` and `resolve_verbose`.
    """
    own = task.settings.callbacks if task.running_callbacks is None else ()
    everyone = CallbackList([*own, *callbacks], task, params={"steps": loader.steps_per_epoch})
    progress = make_progress(
        resolve_verbose(verbose, sys.stderr),
        stream=sys.stderr,
        patience=PATIENCE_SECONDS if verbose == "auto" else 0.0,
        unit="samples",
    )
    built, watch = task.require(), Watch(what, everyone, progress)
    try:
        with task.busy.doing(PREDICTION if what == "predict" else EVALUATION), task.switches():
            built.verify()
            watch.start(loader.steps_per_epoch)
            yield watch
    finally:
        forget_guests(task, built, loader)
        progress.close()


def check_whole(loader: Loader, what: str) -> None:
    """A mean over samples, and outputs in index order, are of all samples.

    Raises:
        ValueError: The loader leaves some out.
    """
    left_out = loader.num_samples % loader.batch_size if loader.drop_last else 0
    if left_out:
        raise ValueError(
            f"{what}: drop_last=True leaves out {left_out} of {loader.num_samples} samples; "
            "it takes a loader without drop_last, whose last batch may be short"
        )


@contextmanager
def _fitting(built: Built, loader: Loader) -> Iterator[None]:
    """ValueError for samples that the model does not take, around its look at a batch."""
    try:
        yield
    except RuntimeError as error:
        refuse_samples(error, built, *loader.sample_spec()[:2])
        raise


def forget_guests(
    task: Task, built: Built, *loaders: Loader | None, training: bool = False
) -> None:
    """Close the streams of those loaders that are not the task's own: nobody asks for them again.

    `training` also closes what a fit reads.
    """
    own = (task.settings.train, task.settings.valid)
    for loader in loaders:
        if loader is not None and all(loader is not one for one in own):
            built.executor.forget(loader, training=training)


def evaluate(
    built: Built,
    loader: Loader,
    *,
    seed: int,
    weights: str | None = None,
    watch: Watch | None = None,
) -> dict[str, float]:
    """Means of loss and metrics over the samples of a data set.

    Args:
        built: The compiled task.
        loader: The data; a partial batch counts by its samples.
        seed: Keys random transforms, if the loader has any.
        weights: "raw", "ema", or None for EMA weights where there are any.
        watch: Told of every batch; who started it ends it.

    Raises:
        ValueError: The loader leaves samples out, has no targets, or the model does not take them.
    """
    check_whole(loader, "evaluate")
    executor, place = built.executor, Located(loader, seed, "evaluate")
    executor.tally.test.zero_()
    with (
        weights_of(built, weights),
        executor.test_batches(loader, seed=seed) as batches,
    ):
        read = place.read(batches)
        for batch in read if watch is None else watch.each(read):
            with place, _fitting(built, loader):
                if isinstance(batch, Batch) and batch.y is None:
                    raise ValueError(f"evaluate: {NO_TARGETS}")
                executor.test_step(batch)
    return executor.tally.means("test")


def evaluate_task(
    task: Task, loader: Loader, weights: str | None, callbacks: Sequence[Callback], verbose: Any
) -> dict[str, float]:
    """What `Task.evaluate` does."""
    built = task.require("loss")
    check_data(built, loader, "evaluate")
    with watching(task, "evaluate", loader, callbacks, verbose) as watch:
        means = evaluate(built, loader, seed=task.seed, weights=weights, watch=watch)
        watch.end(means)
    return means


def predict_task(
    task: Task, loader: Loader, weights: str | None, callbacks: Sequence[Callback], verbose: Any
) -> Any:
    """What `Task.predict` does."""
    built = task.require()
    with watching(task, "predict", loader, callbacks, verbose) as watch:
        outputs = predict(built, loader, seed=task.seed, weights=weights, watch=watch)
        watch.end({})
    return outputs


def test_on_batch(built: Built, x: Any, y: Any) -> dict[str, float]:
    """Loss and metrics of one batch with raw weights."""
    executor = built.executor
    executor.tally.test.zero_()
    batch = executor.place(x, y)
    with explaining(built, batch):
        executor.test_step(batch)
    return executor.tally.means("test")


def _check_order(loader: Any) -> None:
    """Refuse a DataLoader whose k-th row is not sample k: it does not say which one it is."""
    if isinstance(loader, TorchLoader) and not loader.is_in_order:
        raise ValueError(
            "predict gives outputs in index order, but this DataLoader hands out samples in an "
            f"order of its own ({type(loader.loader.sampler).__name__}) and does not say which; "
            "use DataLoader(..., shuffle=False) without a sampler, or an rn.Loader"
        )


def _rows_of(output: Any, samples: int) -> tuple[list[npt.NDArray[Any] | None], Any]:
    """What a model gave for a batch as arrays, one for each tensor of it, and its structure.

    Raises:
        ValueError: A tensor has no row for each sample.
        TypeError: Something in it is neither a tensor nor None.
    """
    leaves, structure = tree_flatten(output)
    rows = []
    for leaf in leaves:
        if leaf is not None and not isinstance(leaf, Tensor):
            raise TypeError(
                f"predict: the model gives {type(leaf).__name__}; it takes tensors, and tuples, "
                "lists and dicts of them"
            )
        if leaf is not None and leaf.shape[:1] != (samples,):
            raise ValueError(
                f"predict: the model gives a tensor of shape {tuple(leaf.shape)} for {samples} "
                "samples; each of its outputs needs a row for every sample"
            )
        # A copy, on the CPU too: it may be the input, whose memory the next batches take.
        rows.append(None if leaf is None else leaf.detach().to("cpu", copy=True).numpy())
    return rows, structure


def predict(
    built: Built,
    loader: Loader,
    *,
    seed: int,
    weights: str | None = None,
    watch: Watch | None = None,
) -> Any:
    """Raw outputs of every sample in index order, float32: an array, or a tree of them.

    Raises:
        ValueError: The loader leaves samples out, or is a torch DataLoader in another order, or an
            output has no row for each sample.
        TypeError: The model gives something else than tensors.
    """
    check_whole(loader, "predict")
    _check_order(loader)
    executor, place = built.executor, Located(loader, seed, "predict")
    ids, parts = [], []
    with weights_of(built, weights):
        read = place.read(executor.fed_batches(loader, seed=seed))
        for batch in read if watch is None else watch.each(read):
            with place:
                with _fitting(built, loader):
                    output = executor.predict_step(batch)
                rows, structure = _rows_of(output, len(batch.ids))
            ids.append(np.asarray(batch.ids))
            parts.append(rows)
    return tree_unflatten([_whole(output, ids) for output in zip(*parts)], structure)


def _whole(
    parts: Sequence[npt.NDArray[Any] | None], ids: Sequence[npt.NDArray[np.int64]]
) -> npt.NDArray[Any] | None:
    """One output of all batches in index order; None where the model gave none."""
    given = [part for part in parts if part is not None]
    if len(given) < len(parts):
        return None
    return in_order(given, ids, "predict: the model")
