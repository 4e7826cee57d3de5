"""Two things that happen around an update: averaging of weights and clipping of gradients."""

from __future__ import annotations

from typing_extensions import Self

from renaissance.settings import Setting, Value, setting, value


@value
class Ema(Value):
    """Exponential moving average of the weights and the floating-point buffers.

    ``e = e + (1-d)*(w - e)`` after each applied update; with warm-up ``d = min(decay,
    (1+t)/(10+t))``, t the applied updates since e began, as w. A second compile goes on with both.

    Example:
        >>> Ema(0.999).warmup()
        Ema(0.999, warmup=True)
    """

    decay: Setting[float] = setting(
        kw_only=False, ge=0, lt=1, doc="Part of the average that each update keeps, 0 to below 1."
    )
    warmup: Setting[bool] = setting(
        default=False, doc="Average over fewer updates at the beginning of training."
    )


@value
class Clip(Value):
    """Limit of the unscaled gradients: of their global norm, or of each element. Exactly one.

    By norm: ``g*c`` with ``c = norm/|g|`` when ``|g| > norm``, else exactly 1. By value: each
    element into [-value, value]. A gradient that is not finite skips the update before any clip.
    """

    norm: Setting[float | None] = setting(
        default=None, gt=0, doc="Highest global norm, above 0; None: no limit."
    )
    value: Setting[float | None] = setting(
        default=None, gt=0, doc="Highest absolute value of an element, above 0; None: no limit."
    )

    def check(self) -> None:
        if self.settings.norm is not None and self.settings.value is not None:
            raise ValueError(
                f"Clip: norm={self.settings.norm!r} and value={self.settings.value!r} are both "
                "given; keep one"
            )

    def ready(self) -> Self:
        if self.settings.norm is None and self.settings.value is None:
            raise ValueError("Clip: neither norm nor value is given; write Clip(norm=1.0)")
        return super().ready()
