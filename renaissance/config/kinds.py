"""What a configuration can name: ``type: adamw`` to what stands behind it, by kind.

Built-in names stand in one explicit table for each kind. `register` adds a project's own in
Python; an installed package offers some under the entry point group ``renaissance.<kind>``, loaded
only when a configuration uses the name. A file by itself can import nothing.
"""

from __future__ import annotations

import copy
import importlib.metadata
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import pydantic

import renaissance.datasets as datasets
import renaissance.models as models
from renaissance import callbacks, loggers, losses, optim
from renaissance.config.factories import Factory, argument_texts, factory
from renaissance.data import auto, color, erasing, geometry, resizing
from renaissance.data.loader import Loader
from renaissance.data.mix import CutMix, Mix, Mixup, as_mixes
from renaissance.data.options import LoaderSettings
from renaissance.data.transform import Transform
from renaissance.schedules import curves, plateau
from renaissance.schedules import schedule as schedules
from renaissance.settings import SettingsModel, Value, nearest

#: The base class of kinds whose things are values; a setting of that class is of that kind.
BASES: Mapping[str, type[Value]] = {
    "optimizer": optim.Optimizer,
    "scheduler": schedules.Schedule,
    "loss": losses.Loss,
    "transform": Transform,
    "mix": Mix,
}


def _named(*classes: type[Value]) -> dict[str, Callable[..., Any]]:
    return {cls.type_name: cls for cls in classes}


BUILTIN: Mapping[str, Mapping[str, Callable[..., Any]]] = {
    "optimizer": _named(optim.SGD, optim.Adam, optim.AdamW, optim.LARS),
    "scheduler": _named(
        schedules.ConstantLR,
        curves.PolynomialLR,
        curves.CosineAnnealingLR,
        curves.StepLR,
        curves.MultiStepLR,
        curves.ExponentialLR,
        curves.WSDLR,
        curves.CosineAnnealingWithWarmRestartsLR,
        curves.OneCycleLR,
        plateau.ReduceLROnPlateau,
        schedules.ThenLR,
    ),
    "loss": _named(losses.CrossEntropyLoss, losses.BCEWithLogitsLoss, losses.MSELoss),
    "transform": _named(
        geometry.Pad,
        geometry.RandomCrop,
        geometry.CenterCrop,
        geometry.RandomHorizontalFlip,
        geometry.RandomVerticalFlip,
        geometry.RandomRotation,
        geometry.RandomScale,
        geometry.RandomAffine,
        resizing.Resize,
        resizing.RandomResizedCrop,
        color.ColorJitter,
        color.RandomGrayscale,
        color.RandomAutocontrast,
        color.GaussianBlur,
        auto.TrivialAugmentWide,
        auto.RandAugment,
        erasing.Normalize,
        erasing.RandomErasing,
        erasing.Cutout,
    ),
    "mix": _named(Mixup, CutMix),
    "model": {
        "mlp": models.mlp,
        "seq": models.seq,
        "resnet9": models.resnet9,
        "resnet18": models.resnet18,
        "resnet34": models.resnet34,
        "resnet50": models.resnet50,
        "resnet101": models.resnet101,
        "wide_resnet": models.wide_resnet,
        "wide_resnet28_10": models.wide_resnet28_10,
        "vgg11_bn": models.vgg11_bn,
        "vgg13_bn": models.vgg13_bn,
        "vgg16_bn": models.vgg16_bn,
        "vgg19_bn": models.vgg19_bn,
    },
    "dataset": {
        "digits": datasets.Digits,
        "mnist": datasets.MNIST,
        "fashion_mnist": datasets.FashionMNIST,
        "cifar10": datasets.CIFAR10,
        "cifar100": datasets.CIFAR100,
        "image_folder": datasets.ImageFolder,
        "synthetic": datasets.Synthetic,
    },
    "metric": {},
    "callback": {
        "early_stopping": callbacks.EarlyStopping,
        "model_checkpoint": callbacks.ModelCheckpoint,
        "terminate_on_nan": callbacks.TerminateOnNaN,
        "csv_logger": loggers.CSVLogger,
        "json_logger": loggers.JSONLogger,
        "tensorboard": loggers.TensorBoard,
    },
}

#: Kinds as a sentence calls them.
ARTICLES = {kind: ("an " if kind[0] in "aeiou" else "a ") + kind for kind in BUILTIN} | {
    "dataset": "a data set"
}


@dataclass(frozen=True)
class LoaderOf:
    """A loader over a data set, made from the settings of both in one mapping.

    Where both have a setting of one name, it is the data set's; the loader's is ``loader_<name>``.
    """

    dataset: Callable[..., Any]
    own: frozenset[str]

    def __call__(self, **settings: Any) -> Loader:
        own = {name: given for name, given in settings.items() if name in self.own}
        rest = {name: given for name, given in settings.items() if name not in self.own}
        return Loader(
            self.dataset(**own), **{n.removeprefix("loader_"): given for n, given in rest.items()}
        )


def _check_mixes(given: tuple[Mix, ...]) -> tuple[Mix, ...]:
    try:
        return as_mixes(given)
    except ValueError:
        raise ValueError("a mixup, a cutmix, or one of each with the same p") from None


#: Settings of a loader that hold descriptions.
_LISTS: Mapping[str, Any] = {
    "transforms": tuple[Transform, ...],
    "mix": Annotated[tuple[Mix, ...], pydantic.AfterValidator(_check_mixes)],
}


def data_factory(name: str, make: Callable[..., Any], *, is_builtin: bool = False) -> Factory:
    """The factory of loaders over a data set."""
    own = factory("dataset", name, make).settings.model_fields
    texts = argument_texts(Loader)
    fields: dict[str, Any] = {key: (field.annotation, field) for key, field in own.items()}
    for key, field in LoaderSettings.model_fields.items():
        hint = _LISTS.get(key, field.annotation)
        described = copy.copy(field)
        described.description = texts.get(key)
        fields[f"loader_{key}" if key in own else key] = (hint, described)
    settings = pydantic.create_model(
        f"{name}_data", __base__=SettingsModel, __module__=__name__, **fields
    )
    return Factory("dataset", name, LoaderOf(make, frozenset(own)), settings, is_builtin)


def _factory(kind: str, name: str, make: Callable[..., Any], is_builtin: bool) -> Factory:
    if kind == "dataset":
        return data_factory(name, make, is_builtin=is_builtin)
    return factory(kind, name, make, is_builtin=is_builtin)


class Registry:
    """Names by kind: built in, registered, or offered by installed packages."""

    def __init__(self, builtin: Mapping[str, Mapping[str, Callable[..., Any]]] = BUILTIN) -> None:
        self._points: dict[str, Mapping[str, importlib.metadata.EntryPoint]] = {}
        self._factories: dict[str, dict[str, Factory]] = {
            kind: {name: _factory(kind, name, make, True) for name, make in made.items()}
            for kind, made in builtin.items()
        }

    def register(self, kind: str, name: str, make: Callable[..., Any]) -> None:
        """Let configurations name something of your own.

        Args:
            kind: "model", "dataset", "loss", "optimizer", "scheduler", "transform", "metric" or
                "callback".
            name: The ``type`` in YAML, in snake_case.
            make: A function or class; its parameters with their type hints and defaults become the
                settings. Optimizers, schedules and transforms must be descriptions (subclasses of
                ours).

        Raises:
            ValueError, TypeError: An unknown kind, a name that is taken or is none, or something
                that cannot be called with keywords.

        Example:
            >>> rn.register("model", "my_net", MyNet)
        """
        known = self._kind(kind)
        if not isinstance(name, str) or not re.fullmatch(r"[a-z][a-z0-9_]*", name):
            raise ValueError(
                f"register: name = {name!r} is not allowed; it takes small letters, digits and "
                "underscores, such as 'my_net'"
            )
        if not callable(make):
            raise TypeError(f"register: {make!r} ({type(make).__name__}) cannot be called")
        base = BASES.get(kind)
        if base is not None and kind != "loss" and not _is_subclass(make, base):
            raise TypeError(
                f"register: {make!r} is no {base.__name__}; {kind}s are subclasses of it, "
                "decorated with @value"
            )
        taken = known.get(name)
        if taken is not None and getattr(taken.make, "dataset", taken.make) is not make:
            raise ValueError(
                f"register: the {kind} {name!r} exists already "
                f"({'built in' if taken.is_builtin else repr(taken.make)}); choose another name"
            )
        known[name] = _factory(kind, name, make, False)

    def find(self, kind: str, name: str) -> Factory | None:
        """What `name` stands for; loads the entry point of an installed package if need be."""
        known = self._kind(kind)
        if name not in known:
            point = self._offered(kind).get(name)
            if point is not None:
                self.register(kind, name, point.load())
        return known.get(name)

    def names(self, kind: str) -> list[str]:
        """Every name of a kind, sorted; nothing is loaded."""
        return sorted({*self._kind(kind), *self._offered(kind)})

    def factories(self, kind: str) -> list[Factory]:
        """What is built in or registered, by name."""
        return [self._kind(kind)[name] for name in sorted(self._kind(kind))]

    def _offered(self, kind: str) -> Mapping[str, importlib.metadata.EntryPoint]:
        """The entry points of installed packages; looked for once, as it reads many files."""
        if kind not in self._points:
            points = importlib.metadata.entry_points(group=f"renaissance.{kind}")
            self._points[kind] = {point.name: point for point in points}
        return self._points[kind]

    def _kind(self, kind: str) -> dict[str, Factory]:
        if kind not in self._factories:
            guess = nearest(kind, self._factories)
            hint = f"did you mean {guess!r}? " if guess else ""
            raise ValueError(
                f"kind = {kind!r} is not allowed; {hint}Kinds: {', '.join(self._factories)}"
            )
        return self._factories[kind]


def _is_subclass(make: object, base: type) -> bool:
    return isinstance(make, type) and issubclass(make, base)


#: The names of this process; `register` adds to it.
REGISTRY = Registry()


def register(kind: str, name: str, make: Callable[..., Any]) -> None:
    """See `Registry.register`."""
    REGISTRY.register(kind, name, make)


register.__doc__ = Registry.register.__doc__
