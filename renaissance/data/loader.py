"""The loader: what is read, in which batches and order, with which transforms."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from renaissance.data.arrays import logger
from renaissance.data.batch import Batch
from renaissance.data.dataset import IGNORED, ArrayDataset, len_of, optional, own_subset
from renaissance.data.ledger import Ledger, per_image
from renaissance.data.mix import Mix, plan_mix
from renaissance.data.options import check_settings
from renaissance.data.order import EpochOrders, Order
from renaissance.data.preview import bench, draw_batch, report_of
from renaissance.data.program import Program, compile_program
from renaissance.data.resident import Resident
from renaissance.data.ring import SlotShape, picture_form
from renaissance.data.stream import BatchStream, Position, StreamPlan
from renaissance.data.supply import SampleSpec, Supply, supply_of
from renaissance.data.workers import auto_workers
from renaissance.random import check_seed

Layout = Literal["nchw", "nhwc"]


class Loader:
    """Batches of a data set, in a keyed order and with keyed transforms.

    A loader is a description: it has no position and owns no threads, and several tasks may use one
    at the same time. Order and pixels depend on (seed, epoch, sample id) only; workers and prefetch
    change nothing but the speed.

    Args:
        dataset: A `Dataset` (an object with ``len`` and ``read``) or a torch map-style data set.
        batch_size: Samples in a batch, over all ranks.
        shuffle: A new permutation each epoch, else the order of the data set.
        workers: C++ threads; "auto" is what affinity and control groups allow, less one; 0 lets the
            calling thread do it.
        transforms: Applied in this order to uint8 pictures, see `renaissance.data`.
        mix: `Mixup`, `CutMix` or both, done to pairs of neighbours in a finished batch of pictures;
            y is then (N, num_classes) float32 probabilities.
        drop_last: Leave out the last batch when it is short.
        seed: Of order and transforms; None takes the task's.
        prefetch: Batches made ahead of the consumer, 0 to 64.
        device_cache: Whether uint8 data that fits may live on the GPU: "auto", "on", "off".
        on_error: What a damaged sample does: "raise", "replace" (by another one, drawn by its own
            key) or "blank" (zeros in place of its pixels; the label stays).
        damage_limit: More damaged samples than this end the run; default max(16, 1 %).

    Raises:
        ValueError, TypeError: a setting, the data or their combination is not allowed.

    Example:
        >>> loader = Loader.from_arrays(np.zeros((10, 8, 8), np.uint8), np.arange(10), batch_size=4)
        >>> loader.steps_per_epoch, loader.batch_at(0, 2).x.shape
        (3, (2, 1, 8, 8))
    """

    def __init__(self, dataset: Any, **settings: Any) -> None:
        s = self.settings = check_settings(settings)
        self.dataset = dataset = own_subset(dataset)
        if len_of(dataset) and s.drop_last and s.batch_size > len(dataset):
            raise ValueError(
                f"drop_last=True with batch_size = {s.batch_size} leaves nothing of "
                f"{len(dataset)} samples; use a batch_size of at most {len(dataset)}"
            )
        self._supply: Supply = replace(supply_of(dataset), all_count=bool(s.mix))
        if s.on_error == "blank" and self._supply.label and self._supply.labels is None:
            raise ValueError(
                'on_error="blank" needs labels that are known without reading a sample: give '
                f'{type(dataset).__name__} a labels() method, or use on_error="replace"'
            )
        self._program = self._compile()
        self._mix = plan_mix(s.mix, self._supply.label, repr(dataset)) if s.mix else None
        unit = 2 if s.mix else 1  # pairs stay together
        self._order = Order(self.num_samples, s.batch_size, s.shuffle, s.drop_last, unit)
        self._epoch_orders = EpochOrders(self._order)
        self._ledger = Ledger()
        self._position = Position()  # of the stream opened last
        self._has_said_seed = False
        self._data_identity: dict[str, Any] | None = None

    @classmethod
    def from_arrays(
        cls,
        x: Any,
        y: Any = None,
        *,
        num_classes: int | None = None,
        classes: Sequence[str] | None = None,
        ignore_index: int = IGNORED,
        **settings: Any,
    ) -> Loader:
        """A loader over arrays in memory, see `ArrayDataset`."""
        told: Any = {"num_classes": num_classes, "classes": classes, "ignore_index": ignore_index}
        return cls(ArrayDataset(x, y, **told), **settings)

    @property
    def batch_size(self) -> int:
        """Samples in a full batch, over all ranks."""
        return int(self.settings.batch_size)

    @property
    def shuffle(self) -> bool:
        return bool(self.settings.shuffle)

    @property
    def drop_last(self) -> bool:
        return bool(self.settings.drop_last)

    @property
    def seed(self) -> int | None:
        return self.settings.seed

    @property
    def device_cache(self) -> str:
        return self.settings.device_cache

    @property
    def transforms(self) -> tuple[Any, ...]:
        return self.settings.transforms

    @property
    def mix(self) -> tuple[Mix, ...]:
        return self.settings.mix

    @property
    def num_samples(self) -> int:
        return self._supply.num_samples

    @property
    def steps_per_epoch(self) -> int:
        """Batches in one epoch."""
        return self._order.steps

    @property
    def num_classes(self) -> int | None:
        return getattr(self.dataset, "num_classes", None)

    @property
    def classes(self) -> tuple[str, ...] | None:
        return self._supply.classes

    @property
    def workers(self) -> int:
        """Threads that a stream starts here."""
        wanted = self.settings.workers
        return auto_workers() if wanted == "auto" else int(wanted)

    def __len__(self) -> int:
        return self.steps_per_epoch

    def __iter__(self) -> Iterator[Batch]:
        raise TypeError(
            "a Loader has no position of its own: write `for x, y, ids in loader.epoch(0)`, or "
            "give it to a Task"
        )

    def __repr__(self) -> str:
        given = {
            name: getattr(self.settings, name)
            for name in type(self.settings).model_fields
            if name in self.settings.model_fields_set
        }
        parts = ", ".join(f"{name}={value!r}" for name, value in given.items())
        return f"Loader({self.dataset!r}, {parts})"

    def sample_spec(self) -> SampleSpec:
        """Shape and dtype of one sample of x as float32 "nchw", and what its label is."""
        if self._program is None:
            tensor_dtype = torch.from_numpy(np.empty(0, self._supply.dtype)).dtype
            return SampleSpec(self._supply.shape, tensor_dtype, self._supply.label)
        label = self._supply.label if self._mix is None else self._mix.label
        return SampleSpec(self._program.shape, torch.float32, label)

    def stream(  # noqa: PLR0913  every one by keyword
        self,
        *,
        seed: int | None = None,
        epoch: int = 0,
        start_step: int = 0,
        steps: int | None = None,
        layout: Layout = "nchw",
        dtype: torch.dtype = torch.float32,
        channels: int | None = None,
        pin: bool = False,
        rank: int = 0,
        world: int = 1,
    ) -> BatchStream:
        """Starts workers on an epoch; close it, or use it in a ``with`` block.

        Args:
            seed: Used when the loader has none of its own.
            epoch, start_step: Where to begin; costs nothing wherever it is.
            steps: The epoch's length in batches, the first ones of it; default all.
            layout: Memory order of pictures; x is (N, C, H, W) in both, "nhwc" channels-last.
            dtype: Of pictures: float32, bfloat16 or float16. Other data keeps its own.
            channels: Pictures padded with zero channels up to this many.
            pin: Page-locked slots, for asynchronous copies to a GPU.
            rank, world: This process's slice of every batch.
        """
        if not 0 <= rank < world:
            raise ValueError(f"rank = {rank} of {world} is not allowed; it takes 0 to {world - 1}")
        share = 1 if world == 1 else world * self._order.unit
        if self.batch_size % share:
            raise ValueError(
                f"batch_size = {self.batch_size} is the size over all ranks and cannot be shared "
                f"by {world}; it takes a multiple of {share}"
            )
        plan = self._plan(self.resolve_seed(seed), layout, dtype, channels, pin)
        plan = replace(
            plan,
            shape=replace(plan.shape, batch=self.batch_size // world),
            rank=rank,
            world=world,
        )
        stream = self._open(plan)
        self._position = stream.position
        return stream.rewind(epoch, start_step, steps)

    def _plan(
        self,
        seed: int,
        layout: str = "nchw",
        dtype: torch.dtype = torch.float32,
        channels: int | None = None,
        pin: bool = False,
    ) -> StreamPlan:
        shape, output = self._slot(layout, dtype, channels, pin)
        return StreamPlan(
            order=self._order,
            seed=seed,
            shape=shape,
            output=output,
            workers=self.workers,
            prefetch=self.settings.prefetch,
            on_error=self.settings.on_error,
            damage_limit=self.damage_limit,
            mix=self._mix,
        )

    def _open(self, plan: StreamPlan) -> BatchStream:
        native = None if self._program is None else self._program.native
        order_of = functools.partial(self._epoch_orders, plan.seed)
        return BatchStream(self._supply, native, plan, self._ledger, order_of)

    def epoch(self, epoch: int, *, seed: int | None = None) -> Iterator[Batch]:
        """The batches of one epoch as NumPy float32 copies of their own."""
        with self.stream(seed=seed, epoch=epoch) as stream:
            yield from map(Batch.as_numpy, stream)

    def batch_at(self, epoch: int, step: int, *, seed: int | None = None) -> Batch:
        """Batch `step` of an epoch as NumPy float32, made in the calling thread.

        The first call for an epoch makes its permutation; no position moves.
        """
        if not 0 <= step < self.steps_per_epoch:
            raise IndexError(
                f"step {step} does not exist; an epoch has {self.steps_per_epoch} batches"
            )
        plan = replace(self._plan(self.resolve_seed(seed)), workers=0, prefetch=0)
        with self._open(plan) as stream:
            return next(stream.rewind(epoch, step, step + 1)).as_numpy()

    def ids_at(self, epoch: int, step: int, *, seed: int | None = None) -> npt.NDArray[np.int64]:
        """Which samples batch `step` of an epoch is made of; reads none of them."""
        return self._ids(self.resolve_seed(seed), epoch, step)

    def state(self) -> tuple[int, int]:
        """(epoch, step) of the batch that the stream opened last hands out next."""
        return self._position.epoch, self._position.step

    def resolve_seed(self, seed: int | None = None) -> int:
        """The loader's own seed, else the one given (the task's), else 0, which is said."""
        if self.settings.seed is not None:
            return int(self.settings.seed)
        if seed is not None:
            return check_seed(seed)
        if not self._has_said_seed and (self.shuffle or self.transforms or self.mix):
            self._has_said_seed = True
            logger.warning("the loader has no seed and no task gives one: 0 is used")
        return 0

    @property
    def damage_limit(self) -> int:
        limit = self.settings.damage_limit
        return max(16, self.num_samples // 100) if limit is None else int(limit)

    def identity(self) -> dict[str, Any]:
        """What a resumed run must find again, as JSON.

        The data set is asked once: it may digest all of its data, and every checkpoint wants this.
        """
        if self._data_identity is None:
            self._data_identity = optional(self.dataset, "identity")
        return {
            "num_samples": self.num_samples,
            "batch_size": self.batch_size,
            "shuffle": self.shuffle,
            "drop_last": self.drop_last,
            "seed": self.settings.seed,
            "on_error": self.settings.on_error,
            "transforms": [repr(transform) for transform in self.transforms],
            **({"mix": [repr(mix) for mix in self.mix]} if self.mix else {}),
            "classes": None if self.classes is None else list(self.classes),
            "dataset": self._data_identity,
        }

    def stats(self) -> dict[str, float]:
        """Why it waits: counters over all streams of this loader.

        ``images``; ``waits``, how often the consumer waited, and ``wait_seconds``, for how long
        (workers are the limit; where batches follow within a millisecond it waits for two);
        ``block_seconds`` workers waited for a free slot (the consumer is), summed over workers;
        ``decode_ms`` and ``augment_ms``: CPU-milliseconds for one image.
        """
        return per_image(self._ledger.totals())

    def bench(self, seconds: float = 3.0, *, seed: int = 0) -> dict[str, float]:
        """Runs epochs with a consumer that does nothing, for about so many seconds.

        Returns ``images_per_second``, ``images_per_second_per_core`` (by CPU time of the workers),
        ``workers`` and the `stats` of this run.
        """
        return bench(self, seconds, seed)

    def report(self) -> str:
        """What is read and how: source, decoder, stages of the transforms, damage."""
        return report_of(self, self._supply, self._program, self._ledger)

    def show_batch(
        self,
        path: str | os.PathLike[str],
        *,
        epoch: int = 0,
        step: int = 0,
        count: int = 16,
        seed: int | None = None,
    ) -> None:
        """Writes a PNG of the first `count` pictures of a batch as the model sees them."""
        if self._program is None:
            raise ValueError(f"show_batch draws pictures; x is {self._supply.dtype} rows")
        batch = self.batch_at(epoch, step, seed=seed)
        draw_batch(path, batch, self._program, self.classes, count)

    def resident(self) -> Resident | None:
        """The data for a device that keeps it and runs the transforms itself, or None."""
        supply = self._supply
        if supply.form != "pictures" or self._program is None or supply.x is None or self.mix:
            return None
        x = np.ascontiguousarray(supply.x).reshape(self.num_samples, *supply.shape)
        return Resident(x, supply.labels, self._program, self._ids)

    def _ids(self, seed: int, epoch: int, step: int) -> npt.NDArray[np.int64]:
        return self._order.ids(self._epoch_orders(seed, epoch), step)

    def _compile(self) -> Program | None:
        if not self._supply.is_picture:
            if self.transforms or self.mix:
                raise TypeError(
                    f"transforms and mix work on uint8 pictures; x is {self._supply.dtype} of "
                    f"shape {self._supply.shape}, which passes untouched. Pass uint8 (N, H, W[, C])"
                )
            return None
        height, width, channels = self._supply.shape
        if height:
            return compile_program(self.transforms, channels=channels, height=height, width=width)
        try:
            return compile_program(self.transforms, channels=channels)
        except ValueError:  # it needs to know the size: that of the first picture
            height, width = self._supply.first_size()
            return compile_program(self.transforms, channels=channels, height=height, width=width)

    def _slot(
        self, layout: str, dtype: torch.dtype, channels: int | None, pin: bool
    ) -> tuple[SlotShape, tuple[int, int, int]]:
        spec, batch = self.sample_spec(), self.batch_size
        label = spec.label
        y_shape, y_dtype = (None, torch.int64) if label is None else (label.shape, label.dtype)
        if self._program is None:
            return SlotShape(batch, spec.shape, spec.dtype, y_shape, y_dtype, pin=pin), (0, 0, 0)
        output = picture_form(layout, dtype, channels, spec.shape[0])
        x_shape = (output[2], *spec.shape[1:])
        shape = SlotShape(batch, x_shape, dtype, y_shape, y_dtype, layout == "nhwc", pin)
        return shape, output
