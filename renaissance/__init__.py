"""Renaissance: a Keras-style training API on PyTorch."""

from renaissance.curves import WSDLR as WSDLR
from renaissance.curves import CosineAnnealingLR as CosineAnnealingLR
from renaissance.curves import (
    CosineAnnealingWithWarmRestartsLR as CosineAnnealingWithWarmRestartsLR,
)
from renaissance.curves import ExponentialLR as ExponentialLR
from renaissance.curves import MultiStepLR as MultiStepLR
from renaissance.curves import OneCycleLR as OneCycleLR
from renaissance.curves import PolynomialLR as PolynomialLR
from renaissance.curves import StepLR as StepLR
from renaissance.ema import Clip as Clip
from renaissance.ema import Ema as Ema
from renaissance.init import Initializer as Initializer
from renaissance.init import InitRule as InitRule
from renaissance.losses import BCEWithLogitsLoss as BCEWithLogitsLoss
from renaissance.losses import CrossEntropyLoss as CrossEntropyLoss
from renaissance.losses import MSELoss as MSELoss
from renaissance.memory import MemoryPlan as MemoryPlan
from renaissance.metrics import Metric as Metric
from renaissance.optim import LARS as LARS
from renaissance.optim import SGD as SGD
from renaissance.optim import Adam as Adam
from renaissance.optim import AdamW as AdamW
from renaissance.plateau import ReduceLROnPlateau as ReduceLROnPlateau
from renaissance.random import Generator as Generator
from renaissance.random import Permutation as Permutation
from renaissance.schedules import ConstantLR as ConstantLR
