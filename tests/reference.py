"""Float64 references of what the range kernels do, written from the formulas, not from the code.

Every function takes and returns NumPy float64 arrays and Python floats. Where a kernel rounds, the
reference does not.
"""

import math

import numpy as np


def _sgd(w, g, state, *, lr, momentum=0.0, nesterov=False, weight_decay=0.0, l2=0.0, **_):
    g = g + l2 * w
    direction = g
    if momentum:
        state["m"] = momentum * state["m"] + g
        direction = momentum * state["m"] + g if nesterov else state["m"]
    return w - (lr * direction + lr * weight_decay * w)


def _adam_direction(g, state, *, t, beta1, beta2, eps):
    state["m"] = beta1 * state["m"] + (1 - beta1) * g
    state["v"] = beta2 * state["v"] + (1 - beta2) * g * g
    mean = state["m"] / (1 - beta1**t)
    square = state["v"] / (1 - beta2**t)
    return mean / (np.sqrt(square) + eps)


def _adam(w, g, state, *, lr, t, beta1, beta2, eps, weight_decay=0.0, **_):
    g = g + weight_decay * w
    return w - lr * _adam_direction(g, state, t=t, beta1=beta1, beta2=beta2, eps=eps)


def _adamw(w, g, state, *, lr, t, beta1, beta2, eps, weight_decay=0.0, **_):
    direction = _adam_direction(g, state, t=t, beta1=beta1, beta2=beta2, eps=eps)
    return w - (lr * direction + lr * weight_decay * w)


def trust_ratio(w, g, *, trust_coefficient, weight_decay, eps):
    """eta of one tensor."""
    w_norm, g_norm = math.sqrt(np.sum(w * w)), math.sqrt(np.sum(g * g))
    if w_norm < 1e-12 or g_norm < 1e-12:
        return 1.0
    return min(100.0, trust_coefficient * w_norm / (g_norm + weight_decay * w_norm + eps))


def _lars(w, g, state, *, lr, momentum, nesterov=False, weight_decay, trust_coefficient, eps, **_):
    eta = trust_ratio(w, g, trust_coefficient=trust_coefficient, weight_decay=weight_decay, eps=eps)
    g = lr * eta * (g + weight_decay * w)
    state["m"] = momentum * state["m"] + g
    return w - (g + momentum * state["m"] if nesterov else state["m"])


def optimizer_step(optimizer, w, g, state, *, lr, t, is_weights=True):
    """w after one update of one tensor; `state` ({"m": ..., "v": ...}) changes in place.

    Args:
        optimizer: An optimizer value.
        g: Unscaled and clipped.
        t: Applied updates, this one included.
        is_weights: False for bias-like tensors: no weight decay, no trust ratio.
    """
    settings = optimizer.settings.model_dump() | {"lr": lr, "t": t}
    if not is_weights:
        settings |= {"weight_decay": 0.0, "l2": 0.0}
    name = type(optimizer).__name__
    if name == "LARS" and not is_weights:
        return _sgd(w, g, state, **settings)
    return {"SGD": _sgd, "Adam": _adam, "AdamW": _adamw, "LARS": _lars}[name](
        w, g, state, **settings
    )


def largest_terms(optimizer, w, g, state, **step):
    """What rounding errors of `optimizer_step` are relative to: (for w, for each moment).

    The largest term of each sum, elementwise: the same step with every sign positive, so that
    nothing cancels.
    """
    terms = {name: np.abs(moment) for name, moment in state.items()}
    change = np.abs(w) - optimizer_step(optimizer, np.abs(w), np.abs(g), terms, **step)
    return np.maximum(np.abs(w), change), terms


def clip_factor(norm, max_norm):
    return max_norm / norm if norm > max_norm else 1.0


def ema_rate(t, decay, warmup):
    """1 - d after t applied updates."""
    return 1 - (min(decay, (1 + t) / (10 + t)) if warmup else decay)


def norm(x):
    return math.sqrt(math.fsum(float(v) ** 2 for v in np.ravel(x)))
