"""A torch DataLoader in the place of a `Loader`: accepted, with fewer promises."""

from __future__ import annotations

import copy
import itertools
import os
import weakref
from collections.abc import Iterator, Mapping
from typing import Any, cast

import numpy as np
import torch
from typing_extensions import Self

from renaissance.data.arrays import logger
from renaissance.data.batch import Batch, Judge, judged, mapped
from renaissance.data.collated import Collated
from renaissance.data.generators import Generators, generators_of, samplers_of
from renaissance.data.loader import Loader
from renaissance.data.stream import Position
from renaissance.data.supply import LabelSpec, SampleSpec
from renaissance.random import ORDER, check_seed, derive

#: What does not hold with somebody else's loader; said at fit.
TORCH_NOTE = (
    "batches come from a torch DataLoader: its order and transforms are its own, resuming in "
    "mid-epoch reads and drops the batches before, and its number of workers may change results"
)

_RANDOM_SAMPLERS = (
    torch.utils.data.RandomSampler,
    torch.utils.data.SubsetRandomSampler,
    torch.utils.data.WeightedRandomSampler,
)


#: Which stream has the workers of a DataLoader that keeps them.
_readers: weakref.WeakKeyDictionary[Any, weakref.ref[TorchStream]] = weakref.WeakKeyDictionary()


#: DataLoaders of which the note was said.
_told: weakref.WeakSet[Any] = weakref.WeakSet()


class TorchLoader:
    """Wraps a ``torch.utils.data.DataLoader``; `Collated` says what its batches may be.

    Args:
        loader: It must have a length, and batches of one shape (the last one may be shorter).
        seed: Of its order and transforms, where they draw in this process; None takes the task's.

    Raises:
        TypeError: no DataLoader, or one without a length.
        ValueError: it is empty.
    """

    note = TORCH_NOTE
    shuffle = False
    num_classes = classes = None
    device_cache = "off"
    transforms: tuple[Any, ...] = ()

    def __init__(
        self, loader: torch.utils.data.DataLoader[Any], *, seed: int | None = None
    ) -> None:
        if not isinstance(loader, torch.utils.data.DataLoader):
            raise TypeError(f"TorchLoader received {type(loader).__name__}; it takes a DataLoader")
        _check_data_set(loader.dataset)
        try:
            self.steps_per_epoch = len(loader)
        except TypeError:
            raise TypeError(
                "the DataLoader has no length (an iterable data set); give its data set a __len__"
            ) from None
        if self.steps_per_epoch == 0:
            raise ValueError("the DataLoader is empty: 0 batches; it takes at least 1")
        self.loader = loader
        self.seed = None if seed is None else check_seed(seed)
        self.collated = Collated()
        self._spec: SampleSpec | None = None
        self._position = Position()

    @property
    def batch_size(self) -> int:
        """Samples in a full batch of this rank."""
        return int(self.loader.batch_size or self._peek_size())

    @property
    def drop_last(self) -> bool:
        return bool(getattr(self.loader.batch_sampler, "drop_last", self.loader.drop_last))

    @property
    def _sampler(self) -> Any:
        """What gives the indices; beside a batch sampler the DataLoader's own is not asked."""
        return getattr(self.loader.batch_sampler, "sampler", self.loader.sampler)

    @property
    def num_samples(self) -> int:
        if hasattr(self._sampler, "__len__"):
            return len(self._sampler)
        return self.steps_per_epoch * self.batch_size

    @property
    def is_in_order(self) -> bool:
        """Whether samples come by rising index; asks samplers that are not torch's own."""
        samplers = torch.utils.data
        if isinstance(self.loader.dataset, samplers.IterableDataset):
            return True
        batches = self.loader.batch_sampler
        is_plain = batches is None or type(batches) is samplers.BatchSampler
        sampler = self._sampler
        if is_plain and type(sampler) is samplers.SequentialSampler:
            return True
        if is_plain and isinstance(sampler, _RANDOM_SAMPLERS):
            return False
        with Generators.seeded(0, generators_of(self.loader)), torch.device("cpu"):
            given: Any = sampler if is_plain else itertools.chain.from_iterable(batches or ())
            indices = list(given)
        return all(before < after for before, after in zip(indices, indices[1:]))

    def __len__(self) -> int:
        return self.steps_per_epoch

    def __repr__(self) -> str:
        return f"TorchLoader({type(self.loader.dataset).__name__}, batch_size={self.batch_size})"

    def _peek_size(self) -> int:
        return len(self.batch_at(0, 0))

    def sample_spec(self) -> SampleSpec:
        """What one sample is; reads the first batch once."""
        if self._spec is None:
            batch = self.batch_at(0, 0)
            x, label = mapped(torch.from_numpy, batch.x), None
            if batch.y is not None:
                y = torch.from_numpy(batch.y)
                label = LabelSpec(tuple(y.shape[1:]), y.dtype, None)
            shape = mapped(lambda tensor: tuple(tensor.shape[1:]), x)
            self._spec = SampleSpec(shape, mapped(lambda tensor: tensor.dtype, x), label)
        return self._spec

    def stream(
        self,
        *,
        seed: int | None = None,
        epoch: int = 0,
        start_step: int = 0,
        steps: int | None = None,
        **form: Any,
    ) -> TorchStream:
        """As `Loader.stream`; of ``form``, "layout", "channels" and "pin" apply to pictures."""
        if self.seed is not None:
            seed = self.seed
        stream = TorchStream(self, 0 if seed is None else check_seed(seed), form)
        self._position = stream.position
        return stream.rewind(epoch, start_step, steps)

    def epoch(self, epoch: int, *, seed: int | None = None) -> Iterator[Batch]:
        """The batches of one epoch as NumPy arrays."""
        with self.stream(seed=seed, epoch=epoch) as stream:
            for batch in stream:
                yield batch.as_numpy()

    def batch_at(self, epoch: int, step: int, *, seed: int | None = None) -> Batch:
        """Batch `step` of an epoch; reads those before it."""
        if not 0 <= step < self.steps_per_epoch:
            raise IndexError(
                f"step {step} does not exist; an epoch has {self.steps_per_epoch} batches"
            )
        with self.stream(seed=seed, epoch=epoch, start_step=step) as stream:
            return next(stream).as_numpy()

    def begin(self, reader: TorchStream, key: int) -> tuple[Iterator[Any], Generators]:
        """An epoch's batches for one stream, and the generators they are to be read under.

        With ``persistent_workers`` a DataLoader has one iterator, which every ``iter`` starts anew:
        a second reader would move the first one's place. Who comes while that reads gets workers
        of its own, for all its epochs. Their first epoch draws once more than later ones do, and is
        therefore begun twice.
        """
        loader: Any = self.loader
        own = generators_of(loader)
        if loader.persistent_workers:
            known = _readers.get(loader)
            first = None if known is None else known()
            is_taken = first is not None and first is not reader and first.is_reading
            if is_taken and reader.apart is None:
                reader.apart = copy.copy(loader)
                reader.apart._iterator = None
            if reader.apart is None:
                _readers[loader] = weakref.ref(reader)
            else:
                loader = reader.apart
            if loader._iterator is None:
                with Generators.seeded(key, own), torch.device("cpu"):
                    iter(loader)
        states = Generators.seeded(key, own)
        with states, torch.device("cpu"):  # whatever torch's default device is
            return iter(loader), states

    def state(self) -> tuple[int, int]:
        return self._position.epoch, self._position.step

    def identity(self) -> dict[str, Any]:
        return {
            "dataset": {"type": type(self.loader.dataset).__name__},
            "num_samples": self.num_samples,
            "steps_per_epoch": self.steps_per_epoch,
            "batch_size": self.loader.batch_size,
            "drop_last": self.drop_last,
            "sampler": type(self._sampler).__name__,
            "seeds": [str(self.seed), *(str(g.initial_seed()) for g in generators_of(self.loader))],
        }

    def resident(self) -> None:
        """Nothing of it can live on a device."""

    def report(self) -> str:
        return f"{self!r}: {self.num_samples} samples\n  {self.note}"


class TorchStream:
    """An iteration over a DataLoader with the interface of `BatchStream`.

    torch's, NumPy's and Python's global generators, and those that the DataLoader was given, are
    lent to it with states keyed by (seed, epoch), and given back after every batch.

    Attributes:
        position: The batch that comes next.
        judge: Looks at every batch.
        apart: A copy of the DataLoader, with workers that this stream keeps for itself.
    """

    def __init__(self, owner: TorchLoader, seed: int, form: dict[str, Any]) -> None:
        self._owner, self._seed, self._form = owner, seed, form
        self._iterator: Iterator[Any] | None = None
        self.position = Position()
        self.judge: Judge | None = None
        self.apart: Any = None
        self._end = self._next_id = 0

    def rewind(self, epoch: int, start_step: int = 0, steps: int | None = None) -> Self:
        total = self._owner.steps_per_epoch
        if epoch < 0 or not 0 <= start_step <= total:
            raise ValueError(
                f"epoch {epoch}, step {start_step} does not exist; an epoch has {total} batches"
            )
        for sampler in samplers_of(self._owner.loader):
            if hasattr(sampler, "set_epoch"):
                sampler.set_epoch(epoch)
        self.position.epoch, self.position.step = epoch, 0
        self._end = total if steps is None else min(steps, total)
        self._iterator, self._states = self._owner.begin(self, derive(self._seed, ORDER, epoch))
        self._next_id = 0
        while self.position.step < start_step:
            self._next_id += self._owner.collated.count(self._read())
        return self

    def state(self) -> tuple[int, int]:
        return self.position.epoch, self.position.step

    def next(self) -> Batch | None:
        """The next batch, None at the end of the epoch."""
        if self.position.step >= self._end:
            return None
        x, y, samples = self._owner.collated.parts(self._read())
        x = mapped(self._formed, x)
        if self._form.get("pin"):
            x, y = mapped(torch.Tensor.pin_memory, x), None if y is None else y.pin_memory()
        first, self._next_id = self._next_id, self._next_id + samples
        batch = Batch(x, y, np.arange(first, self._next_id, dtype=np.int64))
        return judged(batch, self.judge, self.position.epoch, self.position.step - 1)

    def release(self, batch: Batch) -> None:
        """Nothing to give back: every batch has memory of its own."""

    def stats(self) -> dict[str, float]:
        return {}

    @property
    def closed(self) -> bool:
        """Whether there is nothing to read from until it is rewound."""
        return self._iterator is None

    @property
    def is_reading(self) -> bool:
        """Whether batches of its epoch are still to come."""
        return self._iterator is not None and self.position.step < self._end

    def close(self) -> None:
        self._iterator = self.apart = None
        self._end = self.position.step

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Batch:
        batch = self.next()
        if batch is None:
            raise StopIteration
        return batch

    def __len__(self) -> int:
        return max(0, self._end - self.position.step)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self) -> Any:
        if self._iterator is None:
            raise RuntimeError("this stream is closed; open a new one")
        with self._states, torch.device("cpu"):
            try:
                item = next(self._iterator)
            except StopIteration:
                raise RuntimeError(
                    f"the DataLoader ended after {self.position.step} batches; its length said "
                    f"{self._owner.steps_per_epoch}; give its data set the right __len__"
                ) from None
        self.position.step += 1
        return item

    def _formed(self, x: torch.Tensor) -> torch.Tensor:
        if x.is_floating_point() and x.dtype != self._form.get("dtype"):
            x = x.float()  # what the model is tried with, and its weights are
        if x.ndim != 4:
            return x
        more = (self._form.get("channels") or 0) - x.shape[1]
        if more > 0:
            x = torch.nn.functional.pad(x, (0, 0, 0, 0, 0, more))
        if self._form.get("layout") == "nhwc":
            x = x.contiguous(memory_format=torch.channels_last)
        return x


def _check_data_set(dataset: Any) -> None:
    """TypeError for what a DataLoader cannot index, before torch says so of its own code."""
    if isinstance(dataset, Loader):
        raise TypeError("the DataLoader is around an rn.Loader, which a task takes as it is")
    is_read = callable(getattr(dataset, "read", None)) and not hasattr(dataset, "__getitem__")
    if is_read and not hasattr(dataset, "__iter__"):
        raise TypeError(
            f"the DataLoader is around {type(dataset).__name__}, which has no samples by "
            "[index]; write rn.Loader(dataset, batch_size=...)"
        )


def as_loader(data: Any) -> Loader:
    """What a `Task` takes as data: a `Loader`, or a DataLoader, which is wrapped.

    A `TorchLoader` has all of a `Loader` that training, evaluation and checkpoints use.

    Raises:
        TypeError: anything else; the text says what to write.
    """
    if isinstance(data, (Loader, TorchLoader)):
        return cast("Loader", data)
    if isinstance(data, torch.utils.data.DataLoader):
        return cast("Loader", TorchLoader(data))
    raise TypeError(
        f"data: received {type(data).__name__}; an rn.Loader or a torch DataLoader is needed; "
        f"write {_remedy(data)}"
    )


def as_loaders(*data: Any) -> tuple[Loader | None, ...]:
    """What training reads, None where there is none; of each DataLoader `TORCH_NOTE` is said once.

    Raises:
        TypeError: See `as_loader`.
    """
    found = tuple(None if one is None else as_loader(one) for one in data)
    theirs = {one.loader for one in cast("tuple[Any, ...]", found) if isinstance(one, TorchLoader)}
    if not theirs <= set(_told):
        logger.warning(TORCH_NOTE)
    _told.update(theirs)
    return found


def _remedy(data: Any) -> str:
    if isinstance(data, (str, os.PathLike)):
        path = os.fspath(data)
        return f"rn.Loader(renaissance.datasets.ImageFolder({path!r}), batch_size=...)"
    if isinstance(data, Mapping):
        return (
            "rn.Loader.from_arrays(x, y, batch_size=...), or for several inputs "
            "DataLoader(samples, batch_size=...), each sample a dict: of whole arrays samples are "
            "torch.utils.data.StackDataset(**data)"
        )
    is_array = hasattr(data, "shape") or isinstance(data, (tuple, dict))  # (x, y)
    is_array |= isinstance(data, list) and bool(data) and isinstance(data[0], list)  # rows
    if hasattr(data, "__len__") and not is_array:
        return "rn.Loader(dataset, batch_size=...)"
    return "rn.Loader.from_arrays(x, y, batch_size=...)"
