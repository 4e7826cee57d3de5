"""Network builders: plain torch modules."""

from renaissance.models.blueprint import Blueprint as Blueprint
from renaissance.models.blueprint import seq as seq
from renaissance.models.mlp import MLP as MLP
from renaissance.models.mlp import mlp as mlp
from renaissance.models.resnet import ResNet as ResNet
from renaissance.models.resnet import resnet18 as resnet18
from renaissance.models.resnet import resnet34 as resnet34
from renaissance.models.resnet import resnet50 as resnet50
from renaissance.models.resnet import resnet101 as resnet101
from renaissance.models.resnet9 import ResNet9 as ResNet9
from renaissance.models.resnet9 import resnet9 as resnet9
from renaissance.models.vgg import VGG as VGG
from renaissance.models.vgg import vgg11_bn as vgg11_bn
from renaissance.models.vgg import vgg13_bn as vgg13_bn
from renaissance.models.vgg import vgg16_bn as vgg16_bn
from renaissance.models.vgg import vgg19_bn as vgg19_bn
from renaissance.models.wide_resnet import WideResNet as WideResNet
from renaissance.models.wide_resnet import wide_resnet as wide_resnet
from renaissance.models.wide_resnet import wide_resnet28_10 as wide_resnet28_10
