"""Renaissance: a Keras-style training API on PyTorch."""

from renaissance import built as built
from renaissance import nn as nn
from renaissance.callbacks import EarlyStopping as EarlyStopping
from renaissance.callbacks import LambdaCallback as LambdaCallback
from renaissance.callbacks import ModelCheckpoint as ModelCheckpoint
from renaissance.callbacks import TerminateOnNaN as TerminateOnNaN
from renaissance.config.experiment import Experiment as Experiment
from renaissance.config.experiment import load_experiment as load_experiment
from renaissance.config.kinds import register as register
from renaissance.config.yamltree import ConfigError as ConfigError
from renaissance.data.auto import RandAugment as RandAugment
from renaissance.data.auto import TrivialAugmentWide as TrivialAugmentWide
from renaissance.data.batch import Batch as Batch
from renaissance.data.color import ColorJitter as ColorJitter
from renaissance.data.color import GaussianBlur as GaussianBlur
from renaissance.data.color import RandomAutocontrast as RandomAutocontrast
from renaissance.data.color import RandomGrayscale as RandomGrayscale
from renaissance.data.dataset import Dataset as Dataset
from renaissance.data.dataset import Subset as Subset
from renaissance.data.dataset import split as split
from renaissance.data.erasing import Cutout as Cutout
from renaissance.data.erasing import Normalize as Normalize
from renaissance.data.erasing import RandomErasing as RandomErasing
from renaissance.data.fields import Fields as Fields
from renaissance.data.geometry import CenterCrop as CenterCrop
from renaissance.data.geometry import Pad as Pad
from renaissance.data.geometry import RandomAffine as RandomAffine
from renaissance.data.geometry import RandomCrop as RandomCrop
from renaissance.data.geometry import RandomHorizontalFlip as RandomHorizontalFlip
from renaissance.data.geometry import RandomRotation as RandomRotation
from renaissance.data.geometry import RandomScale as RandomScale
from renaissance.data.geometry import RandomVerticalFlip as RandomVerticalFlip
from renaissance.data.loader import Loader as Loader
from renaissance.data.mix import CutMix as CutMix
from renaissance.data.mix import Mixup as Mixup
from renaissance.data.resizing import RandomResizedCrop as RandomResizedCrop
from renaissance.data.resizing import Resize as Resize
from renaissance.ema import Clip as Clip
from renaissance.ema import Ema as Ema
from renaissance.fit.nonfinite import NonFiniteError as NonFiniteError
from renaissance.fit.options import Horizon as Horizon
from renaissance.history import History as History
from renaissance.hooks import Callback as Callback
from renaissance.hooks import Phase as Phase
from renaissance.init import Initializer as Initializer
from renaissance.init import InitRule as InitRule
from renaissance.interrupts import Interrupted as Interrupted
from renaissance.loggers import CSVLogger as CSVLogger
from renaissance.loggers import JSONLogger as JSONLogger
from renaissance.loggers import TensorBoard as TensorBoard
from renaissance.losses import BCEWithLogitsLoss as BCEWithLogitsLoss
from renaissance.losses import CrossEntropyLoss as CrossEntropyLoss
from renaissance.losses import MSELoss as MSELoss
from renaissance.memory.plan import MemoryPlan as MemoryPlan
from renaissance.metrics import Metric as Metric
from renaissance.optim import LARS as LARS
from renaissance.optim import SGD as SGD
from renaissance.optim import Adam as Adam
from renaissance.optim import AdamW as AdamW
from renaissance.random import Generator as Generator
from renaissance.random import Permutation as Permutation
from renaissance.random import manual_seed as manual_seed
from renaissance.report import ClassReport as ClassReport
from renaissance.schedules.curves import WSDLR as WSDLR
from renaissance.schedules.curves import CosineAnnealingLR as CosineAnnealingLR
from renaissance.schedules.curves import (
    CosineAnnealingWithWarmRestartsLR as CosineAnnealingWithWarmRestartsLR,
)
from renaissance.schedules.curves import ExponentialLR as ExponentialLR
from renaissance.schedules.curves import LambdaLR as LambdaLR
from renaissance.schedules.curves import MultiStepLR as MultiStepLR
from renaissance.schedules.curves import OneCycleLR as OneCycleLR
from renaissance.schedules.curves import PolynomialLR as PolynomialLR
from renaissance.schedules.curves import StepLR as StepLR
from renaissance.schedules.plateau import ReduceLROnPlateau as ReduceLROnPlateau
from renaissance.schedules.schedule import ConstantLR as ConstantLR
from renaissance.score import Score as Score
from renaissance.switches import set_environment as _set_environment
from renaissance.task import Task as Task
from renaissance.tensorfile import CheckpointError as CheckpointError

__version__ = built.VERSION
_set_environment()
