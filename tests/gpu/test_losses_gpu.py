"""Losses and metrics on a CUDA device: deterministic, captured, and equal to the CPU's."""

import pytest
import torch
import torch.nn.functional as F

import renaissance as rn
from renaissance.foreign_losses import as_loss
from renaissance.metrics import binary_accuracy, top_k

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

WEIGHTS = (0.5, 2.0, 0.0, 1.0, 3.0)


def draw(shape, seed):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def classes(shape):
    target = torch.randint(0, 5, shape, generator=torch.Generator().manual_seed(9))
    target[..., 0] = -100
    return target


ROWS, PICTURES = (64, 5), (8, 5, 33, 17)
SMOOTH = rn.CrossEntropyLoss(label_smoothing=0.1, class_weights=WEIGHTS)
CASES = {
    "classes": (rn.CrossEntropyLoss(), ROWS, classes((64,))),
    "weighted": (SMOOTH, ROWS, classes((64,))),
    "pictures": (rn.CrossEntropyLoss(), PICTURES, classes((8, 33, 17))),
    "weighted pictures": (SMOOTH, PICTURES, classes((8, 33, 17))),
    "soft": (SMOOTH, ROWS, torch.softmax(draw(ROWS, 2), 1)),
    "bce": (rn.BCEWithLogitsLoss(), ROWS, torch.sigmoid(draw(ROWS, 2))),
    "mse": (rn.MSELoss(), ROWS, draw(ROWS, 2)),
    "function": (as_loss(F.smooth_l1_loss), ROWS, draw(ROWS, 2)),
}
every = pytest.mark.parametrize("loss, shape, target", CASES.values(), ids=CASES)


@pytest.fixture
def deterministic():
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(before)


def run(function, output, target):
    output = output.detach().requires_grad_()
    total, weight = function(output, target)
    return total.detach(), weight, *torch.autograd.grad(total, output)


@every
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_equals_the_cpu_and_itself(deterministic, loss, shape, target, dtype):
    output = draw(shape, 1).to(dtype)
    function, there = loss.function("cuda"), (output.cuda(), target.cuda())
    first, again = run(function, *there), run(function, *there)
    assert all(torch.equal(a, b) for a, b in zip(first, again))
    host = run(loss.function("cpu"), output, target)
    for a, b in zip(first, host):
        tolerance = {"rtol": 1e-2, "atol": 1e-3} if a.dtype == torch.bfloat16 else {}
        torch.testing.assert_close(a.cpu(), b, **tolerance)


@every
def test_can_be_captured(loss, shape, target):
    """Capture fails on any read by the host; a replay sees new values in the same places."""
    function = loss.function("cuda")
    output, target = draw(shape, 1).cuda().requires_grad_(), target.cuda()
    metric = top_k(2) if loss.is_classification else binary_accuracy

    def step():
        total, weight = function(output, target)
        (gradient,) = torch.autograd.grad(total, output)
        return torch.stack([total.detach(), weight, *metric(output.detach(), target)]), gradient

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    with torch.no_grad():
        output.copy_(draw(shape, 5))
    graph.replay()
    for a, b in zip(captured, step()):
        assert torch.equal(a, b)
