"""The settings of a loader, checked at construction."""

from __future__ import annotations

from typing import Any, Literal

import pydantic

from renaissance.data.mix import as_mixes
from renaissance.data.workers import MAX_WORKERS
from renaissance.random import check_seed
from renaissance.settings import SettingsModel, explain, strict, unknown_name

#: Names of torch's DataLoader, and where they are here.
_FOREIGN_NAMES = {
    "num_workers": "workers",
    "transform": "transforms",
    "prefetch_factor": "prefetch",
    "generator": "seed",
}


class LoaderSettings(SettingsModel):
    """The settings of a loader; `Loader` documents them."""

    batch_size: strict(int) = pydantic.Field(ge=1)  # type: ignore[valid-type]
    shuffle: strict(bool) = False  # type: ignore[valid-type]
    workers: Literal["auto"] | strict(int) = "auto"  # type: ignore[valid-type]
    transforms: tuple[Any, ...] = ()
    mix: tuple[Any, ...] = ()
    drop_last: strict(bool) = False  # type: ignore[valid-type]
    seed: strict(int) | None = None  # type: ignore[valid-type]
    prefetch: strict(int) = pydantic.Field(2, ge=0, le=64)  # type: ignore[valid-type]
    device_cache: Literal["auto", "on", "off"] = "auto"
    on_error: Literal["raise", "replace", "blank"] = "raise"
    damage_limit: strict(int) | None = pydantic.Field(None, ge=0)  # type: ignore[valid-type]


def check_settings(given: dict[str, Any]) -> LoaderSettings:
    """The settings as a frozen model.

    Raises:
        TypeError, ValueError: an unknown name, a wrong type or a number out of range.
    """
    fields = LoaderSettings.model_fields
    for name in given:
        if name in _FOREIGN_NAMES:
            raise TypeError(
                f"Loader has no setting {name!r}; did you mean {_FOREIGN_NAMES[name]!r}?"
            )
        if name not in fields:
            raise TypeError(unknown_name("Loader", name, fields))
    if isinstance(given.get("device_cache"), bool):
        given["device_cache"] = "on" if given["device_cache"] else "off"
    if isinstance(given.get("transforms"), list):
        given["transforms"] = tuple(given["transforms"])
    if "mix" in given:
        given["mix"] = as_mixes(given["mix"])
    try:
        settings = LoaderSettings(**given)
    except pydantic.ValidationError as error:
        raise explain("Loader", error, LoaderSettings) from None
    _check_values(settings)
    return settings


def _check_values(settings: LoaderSettings) -> None:
    """What the types of single settings do not say."""
    if settings.workers != "auto" and not 0 <= settings.workers <= MAX_WORKERS:
        raise ValueError(
            f'Loader: workers = {settings.workers} is not allowed; it takes "auto" or 0 to '
            f"{MAX_WORKERS}"
        )
    if settings.seed is not None:
        check_seed(settings.seed)
    if settings.mix and settings.device_cache == "on":
        raise ValueError(
            "device_cache='on' is not allowed with mix, which the workers do; leave it at 'auto'"
        )
