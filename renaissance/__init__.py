"""Renaissance: a Keras-style training API on PyTorch."""

from renaissance.random import Generator as Generator
from renaissance.random import Permutation as Permutation
