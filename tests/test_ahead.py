"""Kernels compiled side by side: each once, in threads, and nothing is launched meanwhile."""

import threading

import pytest
import torch

from renaissance.nn.ahead import Kernel, compiled_ahead

pytestmark = pytest.mark.timeout(60)


class Function:
    """What ``triton.jit`` gives, as far as a `Kernel` uses it."""

    arg_names = ("x", "y", "M", "C", "RELU")

    def __init__(self, fails=False):
        self.launched, self.compiled, self.threads, self.fails = [], [], set(), fails
        self.loaded = 0

    def __getitem__(self, grid):
        return lambda *arguments, **constants: self.launched.append((grid, arguments, constants))

    def warmup(self, *arguments, grid, **constants):
        if self.fails:
            raise RuntimeError("out of registers")
        self.threads.add(threading.current_thread().name)
        self.compiled.append((arguments[2:], constants))
        return self

    @property
    def run(self):
        self.loaded += 1


@pytest.fixture
def function():
    return Function()


X, Y = torch.zeros(64), torch.zeros(64)


def test_a_launch_outside_is_a_launch(function):
    Kernel(function)[(3,)](X, Y, 5, 8, RELU=True)
    assert function.launched == [((3,), (X, Y, 5, 8), {"RELU": True})] and not function.compiled


def test_inside_each_kernel_is_compiled_once_and_none_is_launched(function):
    kernel = Kernel(function, ["M"])
    with compiled_ahead(threads=2):
        kernel[(3,)](X, Y, 5, 8, RELU=True)
        kernel[(4,)](Y, X, 48, 8, RELU=True)  # M is no reason for another one
        kernel[(4,)](X, Y, 2**31, 8, RELU=True)  # but for its type, of 64 bits
        kernel[(3,)](X, Y, 5, 16, RELU=True)  # a multiple of 16
        kernel[(3,)](X, Y, 5, 1, RELU=True)
        kernel[(3,)](X, Y, 5, 8, RELU=False)
        kernel[(3,)](X.half(), Y, 5, 8, RELU=True)
        kernel[(3,)](X[1:], Y, 5, 8, RELU=True)  # not at a multiple of 16 bytes
    assert not function.launched and len(function.compiled) == function.loaded == 7
    assert all(name.startswith("rn-compile") for name in function.threads)
    kernel[(3,)](X, Y, 5, 8, RELU=True)
    assert len(function.launched) == 1


def test_constants_count_by_value_wherever_they_are(function):
    function.constexprs = (2, 3)
    with compiled_ahead(threads=1):
        Kernel(function)[(1,)](X, Y, 1024, 784, RELU=True)
        Kernel(function)[(1,)](X, Y, 512, 1024, RELU=True)
    assert len(function.compiled) == 2
    kernel = Kernel(function)
    with compiled_ahead(threads=1):
        kernel[(1,)](X, Y, 1024, 784, RELU=True)
        kernel[(1,)](X, Y, 512, 1024, RELU=True)  # divisible by 16 as the first is
        kernel[(1,)](X, Y, 512, 1024, RELU=True)
    assert len(function.compiled) == 4


def test_another_thread_launches_meanwhile(function):
    kernel = Kernel(function)
    with compiled_ahead(threads=1):
        other = threading.Thread(target=lambda: kernel[(1,)](X, Y, 5, 8, RELU=True))
        other.start()
        other.join()
    assert len(function.launched) == 1 and not function.compiled


def test_backward_is_heard_too(function):
    kernel = Kernel(function)

    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            kernel[(1,)](g, g, 5, 8, RELU=True)
            return g * 2

    with compiled_ahead(threads=1):
        Doubled.apply(X.clone().requires_grad_()).sum().backward()
    assert len(function.compiled) == 1 and not function.launched


def test_what_does_not_compile_is_an_error_and_leaves_nothing_behind():
    broken, sound = Kernel(Function(fails=True)), Kernel(Function())
    with pytest.raises(RuntimeError, match="out of registers"), compiled_ahead(threads=1):
        broken[(1,)](X, Y, 5, 8, RELU=True)
        sound[(1,)](X, Y, 5, 8, RELU=True)
    assert len(sound.function.compiled) == 1
    sound[(1,)](X, Y, 5, 8, RELU=True)
    assert len(sound.function.launched) == 1
