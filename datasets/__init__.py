"""Data sets that read what is on disk; each follows the Dataset protocol."""

from .cifar import CIFAR10 as CIFAR10
from .cifar import CIFAR100 as CIFAR100
from .digits import Digits as Digits
from .image_folder import ImageFolder as ImageFolder
from .mnist import MNIST as MNIST
from .mnist import FashionMNIST as FashionMNIST
from .synthetic import Synthetic as Synthetic
