"""The recipes of examples/resnet_cifar10.py and fast_cifar10.py as a plain PyTorch script.

    python benchmarks/cifar10_peer.py --data FOLDER --epochs 15 --modes compile
    python benchmarks/cifar10_peer.py --data FOLDER --epochs 15 --seeds 1 2 3 --peer-data gpu
    python benchmarks/cifar10_peer.py --data FOLDER --recipe fast --epochs 16 --peer-data gpu

FOLDER holds train/CLASS and test/CLASS with pictures of 32 x 32. Batches come the usual way, from
torchvision's ImageFolder and v2 transforms in the persistent, pinning worker processes of a
DataLoader; with `--peer-data memory` from pictures that were decoded once, through the same
transforms and workers; with `--peer-data gpu` from whole-batch augmentation on the GPU: the same
distribution, far quicker, so that accuracy over several seeds is affordable. On a GPU: bfloat16
autocast, channels-last, fused SGD. The last line is JSON: for each run its mode and seed, and of
each epoch the test accuracy and the seconds with validation (with `--tests last`: of the last
epoch alone). 15 epochs with data on the GPU take about 15 s a seed on an H200, and from workers
what the processor gives.
"""

import argparse
import concurrent.futures
import copy
import dataclasses
import json
import math
import os
import sys
import time

import torch
import torchvision
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
MOMENTUM, DECAY, PADDING, HOLE = 0.9, 5e-4, 4, 8
BATCH, TEST_BATCH = 512, 1000


@dataclasses.dataclass(frozen=True)
class Recipe:
    """What the two examples differ in.

    Attributes:
        model: A name of `MODELS`.
        rate: The highest.
        warm_up: Epochs in which the rate rises.
        is_linear: Whether it falls on a line, else on a half cosine.
        borders: Of the padded picture: "constant" (zeros) or "reflect".
        average: Decay of the weights' exponential average, which is tested; 0 tests the weights.
    """

    model: str
    epochs: int
    rate: float
    smoothing: float
    warm_up: int
    is_linear: bool
    borders: str
    average: float


RECIPES = {
    "resnet18": Recipe("resnet18", 15, 0.2, 0.1, 2, False, "constant", 0.0),
    "fast": Recipe("resnet9", 16, 0.4, 0.2, 4, True, "reflect", 0.99),
}


def resnet18():
    """torchvision's, for 32x32 pictures: a 3x3 stem and no pooling."""
    model = torchvision.models.resnet18(num_classes=10)
    model.conv1 = nn.Conv2d(3, 64, 3, 1, 1, bias=False)
    model.maxpool = nn.Identity()
    return model


def small():
    """A few layers, to try the scripts on a CPU."""
    layers, channels = [], 3
    for width in (16, 32, 64):
        layers += [
            nn.Conv2d(channels, width, 3, 2, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()
        ]  # fmt: skip
        channels = width
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(64 * 16, 10))


class Normed(nn.Sequential):
    """3x3 convolution, max-pool if wanted, batch-norm, ReLU."""

    def __init__(self, before, after, pool=False):
        layers = [nn.Conv2d(before, after, 3, 1, 1, bias=False)]
        layers += [nn.MaxPool2d(2)] if pool else []
        super().__init__(*layers, nn.BatchNorm2d(after), nn.ReLU())
        nn.init.kaiming_normal_(self[0].weight, mode="fan_out", nonlinearity="relu")


class Pair(nn.Sequential):
    """Two of them plus their input."""

    def forward(self, x):
        return x + super().forward(x)


class ResNet9(nn.Module):
    """The nine-layer network of fast_cifar10.py."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            Normed(3, 64), Normed(64, 128, True), Pair(Normed(128, 128), Normed(128, 128)),
            Normed(128, 256, True), Normed(256, 512, True),
            Pair(Normed(512, 512), Normed(512, 512)),
        )  # fmt: skip
        self.fc = nn.Linear(512, 10, bias=False)

    def forward(self, x):
        return self.fc(self.body(x).amax((-2, -1))) * 0.125


MODELS = {"resnet18": resnet18, "resnet9": ResNet9, "small": small}


def decode(folder, split, limit=None):
    """Pictures (N, 3, 32, 32) uint8 and class numbers (N,) of a split, thinned to `limit`."""
    files = ImageFolder(os.path.join(folder, split))
    samples = files.samples if limit is None else files.samples[:: -(-len(files) // limit)]

    def read(sample):
        return v2.functional.pil_to_tensor(files.loader(sample[0]))

    with concurrent.futures.ThreadPoolExecutor() as pool:
        pictures = torch.stack(list(pool.map(read, samples)))
    return pictures, torch.tensor([label for _, label in samples])


class Cutout(nn.Module):
    """Zeroes a square around a uniform centre, cut off at the borders."""

    def forward(self, picture):
        height, width = picture.shape[-2:]
        top = int(torch.randint(height, ())) - HOLE // 2
        left = int(torch.randint(width, ())) - HOLE // 2
        bottom, right = top + HOLE, left + HOLE
        picture[..., max(top, 0) : bottom, max(left, 0) : right] = 0
        return picture


class Pictures(Dataset):
    """Decoded pictures with transforms of v2."""

    def __init__(self, pictures, labels, transform):
        self.pictures, self.labels, self.transform = pictures, labels.tolist(), transform

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.transform(self.pictures[index]), self.labels[index]


def chains(recipe):
    """What v2 does to a training picture, and to one of the test."""
    augment = [
        v2.RandomCrop(32, padding=PADDING, padding_mode=recipe.borders), v2.RandomHorizontalFlip(),
        v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD), Cutout(),
    ]  # fmt: skip
    return augment, [v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]


def from_memory(options, recipe):
    """(train, test) of pictures that are decoded here."""
    splits = [decode(options.data, split, options.limit) for split in ("train", "test")]
    return [Pictures(*s, v2.Compose(chain)) for s, chain in zip(splits, chains(recipe))]


def from_files(options, recipe):
    """(train, test) of files that are decoded whenever a worker takes them."""
    made = []
    for split, chain in zip(("train", "test"), chains(recipe)):
        folder = os.path.join(options.data, split)
        files = ImageFolder(folder, v2.Compose([v2.PILToTensor(), *chain]))
        if options.limit is not None:
            files.samples = files.samples[:: -(-len(files) // options.limit)]
        made.append(files)
    return made


def from_workers(train, test, workers, device):
    """(training batches, test batches): each call of them gives an epoch's."""
    usual = {
        "num_workers": workers, "persistent_workers": workers > 0,
        "pin_memory": device.type == "cuda",
    }  # fmt: skip
    batches = DataLoader(train, batch_size=BATCH, shuffle=True, drop_last=True, **usual)
    tests = DataLoader(test, batch_size=TEST_BATCH, **usual)

    def moved(loader):
        for x, y in loader:
            x = x.to(device, memory_format=torch.channels_last, non_blocking=True)
            yield x, y.to(device, non_blocking=True)

    return lambda: moved(batches), lambda: moved(tests)


def on_device(train, test, recipe, device):
    """The same batches from whole-batch operations on the device."""
    pictures, labels = (t.to(device) for t in train)
    test_pictures, test_labels = (t.to(device) for t in test)
    mean = torch.tensor(MEAN, device=device).view(1, 3, 1, 1) * 255
    deviation = torch.tensor(STD, device=device).view(1, 3, 1, 1) * 255

    def normal(x):
        return ((x.float() - mean) / deviation).to(memory_format=torch.channels_last)

    padded = nn.functional.pad(pictures.float(), (PADDING,) * 4, mode=recipe.borders).byte()
    line = torch.arange(32, device=device)

    def augmented(ids):
        def draw(high):
            return torch.randint(high, (len(ids), 1), device=device)

        rows = draw(2 * PADDING + 1) + line  # (N, 32)
        columns = draw(2 * PADDING + 1) + torch.where(draw(2) == 1, line.flip(0), line)
        channels = torch.arange(3, device=device)[None, :, None, None]
        x = normal(
            padded[ids[:, None, None, None], channels, rows[:, None, :, None],
                   columns[:, None, None, :]]
        )  # fmt: skip
        top, left = draw(32) - HOLE // 2, draw(32) - HOLE // 2
        in_rows = (line >= top) & (line < top + HOLE)
        in_columns = (line >= left) & (line < left + HOLE)
        hole = in_rows[:, None, :, None] & in_columns[:, None, None, :]
        return x.masked_fill(hole, 0)

    def batches():
        order = torch.randperm(len(labels), device=device)
        for start in range(0, len(labels) - BATCH + 1, BATCH):
            ids = order[start : start + BATCH]
            yield augmented(ids), labels[ids]

    def tests():
        for start in range(0, len(test_labels), TEST_BATCH):
            part = slice(start, start + TEST_BATCH)
            yield normal(test_pictures[part]), test_labels[part]

    return batches, tests


def rate_at(step, total, warm, recipe):
    """Linear up to the recipe's rate, then a half cosine or a line to zero."""
    if step < warm:
        return recipe.rate * (step + 1) / warm
    done = (step - warm) / max(1, total - warm)
    return recipe.rate * (1 - done if recipe.is_linear else (1 + math.cos(math.pi * done)) / 2)


def optimizer_of(model, device):
    """SGD with Nesterov's momentum; biases and norm parameters are not decayed."""
    weights = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim <= 1]
    groups = [{"params": weights, "weight_decay": DECAY}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.SGD(
        groups, lr=0.0, momentum=MOMENTUM, nesterov=True, fused=device.type == "cuda"
    )


class Run:
    """One training: model, optimizer, batches.

    Args:
        model: On the device.
        forward: What is called: the model, or torch.compile of it.
        data: (training batches, test batches).
        steps: Of an epoch.
    """

    def __init__(self, model, forward, data, steps, recipe, device):
        self.model, self.forward, self.steps, self.device = model, forward, steps, device
        self.recipe, (self.batches, self.tests) = recipe, data
        self.optimizer = optimizer_of(model, device)
        self.average = copy.deepcopy(model) if recipe.average else None

    def autocast(self):
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda")

    def train(self, epochs, until, tests):
        """Test accuracy after, and seconds of, each epoch; the schedule is drawn over `epochs`."""
        accuracies, seconds = [], []
        for epoch in range(until):
            start = time.perf_counter()
            self.epoch(epoch, epochs)
            if tests == "each" or epoch == until - 1:
                accuracies.append(self.accuracy())
            seconds.append(time.perf_counter() - start)
        return accuracies, seconds

    def average_weights(self, step):
        """The decay begins small, as (1 + t) / (10 + t)."""
        if self.average is not None:
            decay = min(self.recipe.average, (2 + step) / (11 + step))
            pairs = zip(self.average.state_dict().values(), self.model.state_dict().values())
            floats = [pair for pair in pairs if pair[0].is_floating_point()]
            torch._foreach_lerp_(*map(list, zip(*floats)), 1 - decay)

    def epoch(self, epoch, epochs):
        recipe = self.recipe
        self.model.train()
        total = torch.zeros((), device=self.device)
        for step, (x, y) in enumerate(self.batches(), epoch * self.steps):
            rate = rate_at(step, epochs * self.steps, recipe.warm_up * self.steps, recipe)
            for group in self.optimizer.param_groups:
                group["lr"] = rate
            with self.autocast():
                output = self.forward(x)
                loss = nn.functional.cross_entropy(output, y, label_smoothing=recipe.smoothing)
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            self.optimizer.step()
            self.average_weights(step)
            total += loss.detach()
        if not math.isfinite(float(total)):
            raise RuntimeError(f"the loss of epoch {epoch + 1} is not finite")

    def accuracy(self):
        """Of the test pictures, 0 to 1; reading it waits for the device."""
        forward = self.forward
        self.model.eval()
        if self.average is not None:
            forward = self.average.eval()
        right, count = torch.zeros((), dtype=torch.int64, device=self.device), 0
        with torch.no_grad(), self.autocast():
            for x, y in self.tests():
                right += (forward(x).argmax(1) == y).sum()
                count += len(y)
        return int(right) / count


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", required=True)
    parser.add_argument("--recipe", choices=RECIPES, default="resnet18")
    parser.add_argument("--model", choices=MODELS, help="another model than the recipe's")
    parser.add_argument("--modes", nargs="*", choices=["eager", "compile"], default=["eager"])
    parser.add_argument("--epochs", type=int, help="what the schedule is drawn over")
    parser.add_argument("--until", type=int, help="epochs taken; by default all")
    parser.add_argument("--seeds", nargs="*", type=int, default=[1])
    parser.add_argument("--tests", choices=["each", "last"], default="each", help="epochs tested")
    parser.add_argument("--peer-data", choices=["files", "memory", "gpu"], default="files")
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--limit", type=int, help="pictures of a split, for a trial")
    options = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.backends.cudnn.benchmark = True
    recipe = RECIPES[options.recipe]
    epochs = options.epochs or recipe.epochs
    if options.peer_data == "gpu":
        train, test = (decode(options.data, split, options.limit) for split in ("train", "test"))
        steps, data = len(train[0]) // BATCH, on_device(train, test, recipe, device)
    else:
        sets = from_files if options.peer_data == "files" else from_memory
        train, test = sets(options, recipe)
        steps, data = len(train) // BATCH, from_workers(train, test, options.workers, device)
    runs = []
    for mode in options.modes:
        for seed in options.seeds:
            torch.manual_seed(seed)
            model = MODELS[options.model or recipe.model]()
            model = model.to(device, memory_format=torch.channels_last)
            forward = torch.compile(model, dynamic=False) if mode == "compile" else model
            run = Run(model, forward, data, steps, recipe, device)
            accuracies, seconds = run.train(epochs, options.until or epochs, options.tests)
            runs.append({"mode": mode, "seed": seed, "accuracies": accuracies, "seconds": seconds})
    json.dump(runs, sys.stdout)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
