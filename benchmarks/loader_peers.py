"""The loaders that bench_loader.py runs beside ours: each gives batches and counts its pictures."""

import io
import pathlib
import time
import warnings

import numpy as np
import torch
from PIL import Image

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
MNIST_MEAN, MNIST_STD = (0.1307,), (0.3081,)
JITTER = (0.4, 0.4, 0.4, 0.1)
BATCH = 16


class PerSample:
    """A function of one sample's index, its results stacked into batches as a DataLoader does."""

    def __init__(self, sample, count):
        self.sample, self.count, self.at = sample, count, 0

    def __call__(self, seconds):
        made, start = 0, time.perf_counter()
        while time.perf_counter() - start < seconds:
            batch = [self.sample((self.at + k) % self.count) for k in range(BATCH)]
            torch.stack(batch)
            self.at += BATCH
            made += BATCH
        return made


class Ffcv:
    """Epochs of an FFCV loader; the first one compiles its pipeline."""

    def __init__(self, loader):
        self.loader = loader

    def __call__(self, seconds):
        made, start = 0, time.perf_counter()
        while made == 0 or time.perf_counter() - start < seconds:
            for batch in self.loader:
                made += len(batch[0])
        return made


def imported(name):
    """A peer's module, or None with a line that says so."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return __import__(name)
    except ImportError as error:
        print(f"{name} is not here ({error}); left out")
        return None


def mnist(x):
    """Pad 2, crop, rotation, scale, normalise, erase, on (N, 28, 28, 1) uint8."""
    import torchvision.transforms as v1
    from torchvision.transforms import InterpolationMode, v2

    bilinear = InterpolationMode.BILINEAR
    first = v1.Compose([
        v1.Pad(2), v1.RandomCrop(28), v1.RandomRotation(20, bilinear),
        v1.RandomAffine(0, scale=(0.8, 1.2), interpolation=bilinear),
        v1.ToTensor(), v1.Normalize(MNIST_MEAN, MNIST_STD), v1.RandomErasing(0.5),
    ])  # fmt: skip
    second = v2.Compose([
        v2.Pad(2), v2.RandomCrop(28), v2.RandomRotation(20, bilinear),
        v2.RandomAffine(0, scale=(0.8, 1.2), interpolation=bilinear),
        v2.ToDtype(torch.float32, scale=True), v2.Normalize(MNIST_MEAN, MNIST_STD),
        v2.RandomErasing(0.5),
    ])  # fmt: skip
    grey, planes = x[..., 0], torch.from_numpy(x).permute(0, 3, 1, 2).contiguous()
    return {
        "torchvision v1 (PIL)": PerSample(lambda i: first(Image.fromarray(grey[i])), len(x)),
        "torchvision v2": PerSample(lambda i: second(planes[i]), len(x)),
    }


def cifar(x, folder):
    """Pad 4, crop, flip, normalise, erase, on (N, 32, 32, 3) uint8."""
    import torchvision.transforms as v1
    from torchvision.transforms import v2

    first = v1.Compose([
        v1.RandomCrop(32, 4), v1.RandomHorizontalFlip(), v1.ToTensor(), v1.Normalize(MEAN, STD),
        v1.RandomErasing(0.5),
    ])  # fmt: skip
    second = v2.Compose([
        v2.RandomCrop(32, 4), v2.RandomHorizontalFlip(), v2.ToDtype(torch.float32, scale=True),
        v2.Normalize(MEAN, STD), v2.RandomErasing(0.5),
    ])  # fmt: skip
    planes = torch.from_numpy(x).permute(0, 3, 1, 2).contiguous()
    return {
        "torchvision v1 (PIL)": PerSample(lambda i: first(Image.fromarray(x[i])), len(x)),
        "torchvision v2": PerSample(lambda i: second(planes[i]), len(x)),
        **_ffcv_cifar(x, folder),
    }


def _ffcv_cifar(x, folder):
    if imported("ffcv") is None:
        return {}
    from ffcv.fields import IntField, RGBImageField
    from ffcv.fields.decoders import SimpleRGBImageDecoder
    from ffcv.loader import Loader, OrderOption
    from ffcv.transforms import (
        Cutout,
        NormalizeImage,
        RandomHorizontalFlip,
        RandomTranslate,
        ToTensor,
        ToTorchImage,
    )

    path = _beton(pathlib.Path(folder) / "cifar.beton", x, RGBImageField(), IntField())
    steps = [
        SimpleRGBImageDecoder(), RandomHorizontalFlip(), RandomTranslate(4), Cutout(8),
        NormalizeImage(np.array(MEAN) * 255, np.array(STD) * 255, np.float16),
        ToTensor(), ToTorchImage(),
    ]  # fmt: skip
    loader = Loader(
        path, batch_size=512, num_workers=1, order=OrderOption.RANDOM, os_cache=True,
        drop_last=True, pipelines={"image": steps, "label": None},
    )  # fmt: skip
    return {"FFCV, float16, no erasing but a box": Ffcv(loader)}


def jpeg(files, folder, *, jitter):
    """Decode, RandomResizedCrop 224, flip, [ColorJitter], normalise, on encoded files."""
    import torchvision.transforms as v1
    from torchvision.io import decode_jpeg
    from torchvision.transforms import v2

    first = v1.Compose([
        v1.RandomResizedCrop(224), v1.RandomHorizontalFlip(),
        *([v1.ColorJitter(*JITTER)] if jitter else []),
        v1.ToTensor(), v1.Normalize(MEAN, STD),
    ])  # fmt: skip
    second = v2.Compose([
        v2.RandomResizedCrop(224, antialias=True), v2.RandomHorizontalFlip(),
        *([v2.ColorJitter(*JITTER)] if jitter else []),
        v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD),
    ])  # fmt: skip
    encoded = [torch.frombuffer(bytearray(f), dtype=torch.uint8) for f in files]

    def pillow(i):
        return first(Image.open(io.BytesIO(files[i])).convert("RGB"))

    count = len(files)
    return {
        "torchvision v1 (PIL)": PerSample(pillow, count),
        "torchvision decode + v2": PerSample(lambda i: second(decode_jpeg(encoded[i])), count),
        **_albumentations(files, jitter),
        **({} if jitter else _ffcv_jpeg(files, folder)),
    }


def _albumentations(files, jitter):
    simplejpeg, album = imported("simplejpeg"), imported("albumentations")
    if simplejpeg is None or album is None:
        return {}
    import cv2

    cv2.setNumThreads(1)
    chain = album.Compose([
        album.RandomResizedCrop(size=(224, 224)), album.HorizontalFlip(),
        *([album.ColorJitter(*JITTER, p=1)] if jitter else []), album.Normalize(MEAN, STD),
    ])  # fmt: skip

    def sample(i):
        pixels = chain(image=simplejpeg.decode_jpeg(files[i]))["image"]
        return torch.from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1)))

    return {"simplejpeg + albumentations": PerSample(sample, len(files))}


def _ffcv_jpeg(files, folder):
    if imported("ffcv") is None:
        return {}
    from ffcv.fields import IntField, RGBImageField
    from ffcv.fields.decoders import RandomResizedCropRGBImageDecoder
    from ffcv.loader import Loader, OrderOption
    from ffcv.transforms import NormalizeImage, RandomHorizontalFlip, ToTensor, ToTorchImage

    pictures = [np.asarray(Image.open(io.BytesIO(f)).convert("RGB")) for f in files]
    field = RGBImageField(write_mode="jpg", jpeg_quality=92)
    path = _beton(pathlib.Path(folder) / "jpeg.beton", pictures, field, IntField())
    steps = [
        RandomResizedCropRGBImageDecoder((224, 224)), RandomHorizontalFlip(),
        NormalizeImage(np.array(MEAN) * 255, np.array(STD) * 255, np.float16),
        ToTensor(), ToTorchImage(),
    ]  # fmt: skip
    loader = Loader(
        path, batch_size=32, num_workers=1, order=OrderOption.RANDOM, os_cache=True,
        drop_last=True, pipelines={"image": steps, "label": None},
    )  # fmt: skip
    return {"FFCV, float16, its own JPEG of quality 92": Ffcv(loader)}


def _beton(path, pictures, image, label):
    """Writes FFCV's own format."""
    from ffcv.writer import DatasetWriter

    writer = DatasetWriter(str(path), {"image": image, "label": label}, num_workers=1)
    writer.from_indexed_dataset([(picture, 0) for picture in pictures])
    return str(path)
