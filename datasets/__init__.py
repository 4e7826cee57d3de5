"""Data sets that read what is on disk; each follows the Dataset protocol."""

from .digits import Digits as Digits
from .mnist import MNIST as MNIST
from .mnist import FashionMNIST as FashionMNIST
from .synthetic import Synthetic as Synthetic
