"""The public names, sorted. Adding or removing one is a line here, and reviewed as such."""

import types

import renaissance

PUBLIC = [
    "Adam",
    "AdamW",
    "BCEWithLogitsLoss",
    "Batch",
    "CSVLogger",
    "Callback",
    "CenterCrop",
    "CheckpointError",
    "ClassReport",
    "Clip",
    "ColorJitter",
    "ConfigError",
    "ConstantLR",
    "CosineAnnealingLR",
    "CosineAnnealingWithWarmRestartsLR",
    "CrossEntropyLoss",
    "CutMix",
    "Cutout",
    "Dataset",
    "EarlyStopping",
    "Ema",
    "Experiment",
    "ExponentialLR",
    "Fields",
    "GaussianBlur",
    "Generator",
    "History",
    "Horizon",
    "InitRule",
    "Initializer",
    "Interrupted",
    "JSONLogger",
    "LARS",
    "LambdaCallback",
    "LambdaLR",
    "Loader",
    "MSELoss",
    "MemoryPlan",
    "Metric",
    "Mixup",
    "ModelCheckpoint",
    "MultiStepLR",
    "NonFiniteError",
    "Normalize",
    "OneCycleLR",
    "Pad",
    "Permutation",
    "Phase",
    "PolynomialLR",
    "RandAugment",
    "RandomAffine",
    "RandomAutocontrast",
    "RandomCrop",
    "RandomErasing",
    "RandomGrayscale",
    "RandomHorizontalFlip",
    "RandomResizedCrop",
    "RandomRotation",
    "RandomScale",
    "RandomVerticalFlip",
    "ReduceLROnPlateau",
    "Resize",
    "SGD",
    "Score",
    "StepLR",
    "Subset",
    "Task",
    "TensorBoard",
    "TerminateOnNaN",
    "TrivialAugmentWide",
    "WSDLR",
    "load_experiment",
    "manual_seed",
    "register",
    "split",
]


def public_names(package):
    """What the package offers under its own name, modules and private names apart."""
    return sorted(
        name
        for name, thing in vars(package).items()
        if not name.startswith("_") and not isinstance(thing, types.ModuleType)
    )


def test_public_names_are_the_listed_ones():
    assert public_names(renaissance) == sorted(PUBLIC)


def test_the_list_is_sorted_and_has_no_name_twice():
    assert sorted(set(PUBLIC)) == PUBLIC
