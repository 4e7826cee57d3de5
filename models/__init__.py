"""Network builders: plain torch modules."""

from .blueprint import Blueprint as Blueprint
from .blueprint import seq as seq
from .mlp import MLP as MLP
from .mlp import mlp as mlp
from .resnet import ResNet as ResNet
from .resnet import resnet18 as resnet18
from .resnet import resnet34 as resnet34
from .resnet import resnet50 as resnet50
from .resnet import resnet101 as resnet101
from .vgg import VGG as VGG
from .vgg import vgg11_bn as vgg11_bn
from .vgg import vgg13_bn as vgg13_bn
from .vgg import vgg16_bn as vgg16_bn
from .vgg import vgg19_bn as vgg19_bn
from .wide_resnet import WideResNet as WideResNet
from .wide_resnet import wide_resnet as wide_resnet
from .wide_resnet import wide_resnet28_10 as wide_resnet28_10
