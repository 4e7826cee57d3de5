"""What the four names mean on a device."""

import pytest
import torch

from renaissance.precision import NAMES, Precision, resolve_precision


@pytest.mark.parametrize(
    "name, device, working, tf32, scaling",
    [
        ("32-true", "cpu", None, False, False),
        ("32-true", "cuda:1", None, False, False),
        ("tf32", "cuda", None, True, False),
        ("tf32", "cpu", None, False, False),
        ("bf16-mixed", "cpu", torch.bfloat16, False, False),
        ("bf16-mixed", torch.device("cuda", 0), torch.bfloat16, False, False),
        ("16-mixed", "cuda", torch.float16, False, True),
    ],
)
def test_resolve(name, device, working, tf32, scaling):
    found = resolve_precision(name, device)
    assert found == Precision(name, working, working, tf32, scaling, found.note)


def test_a_drawback_is_said():
    assert "slower" in resolve_precision("bf16-mixed", "cpu").note
    assert "no effect" in resolve_precision("tf32", "cpu").note
    quiet = [resolve_precision(name, "cuda").note for name in NAMES]
    assert quiet == [""] * 4 and resolve_precision("32-true", "cpu").note == ""


def test_half_precision_needs_cuda():
    with pytest.raises(ValueError, match="'16-mixed' needs a CUDA device, this task runs on 'cpu'"):
        resolve_precision("16-mixed", "cpu")


@pytest.mark.parametrize(
    "wrong, right",
    [
        ("fp32", "32-true"),
        ("bf16", "bf16-mixed"),
        ("mixed_float16", "16-mixed"),
        ("bf16-mixd", "bf16-mixed"),
        ("TF32", "tf32"),
    ],
)
def test_near_names(wrong, right):
    with pytest.raises(ValueError, match=f"did you mean '{right}'\\?"):
        resolve_precision(wrong, "cpu")


def test_wrong_types_and_names():
    with pytest.raises(TypeError, match=r"precision = 16 \(int\)"):
        resolve_precision(16, "cpu")
    with pytest.raises(ValueError, match="'quarter' is not allowed; it takes one of"):
        resolve_precision("quarter", "cpu")
