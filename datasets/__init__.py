"""Data sets that read what is on disk; each follows the Dataset protocol."""

from renaissance.datasets.cifar import CIFAR10 as CIFAR10
from renaissance.datasets.cifar import CIFAR100 as CIFAR100
from renaissance.datasets.digits import Digits as Digits
from renaissance.datasets.image_folder import ImageFolder as ImageFolder
from renaissance.datasets.mnist import MNIST as MNIST
from renaissance.datasets.mnist import FashionMNIST as FashionMNIST
from renaissance.datasets.synthetic import Synthetic as Synthetic
