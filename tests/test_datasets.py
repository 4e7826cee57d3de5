"""The data sets: formats, layouts on disk, and refusals."""

import gzip
import os
import pickle
import struct
import tarfile

import numpy as np
import odd_pictures as odd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from real_data import real_data

import renaissance as rn
from renaissance.data.dataset import ArrayDataset
from renaissance.datasets import (
    CIFAR10,
    CIFAR100,
    MNIST,
    Digits,
    FashionMNIST,
    ImageFolder,
    Synthetic,
)
from renaissance.datasets.idx import read_idx


def idx(array):
    head = b"\0\0\x08" + bytes([array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return head + array.tobytes()


@pytest.mark.parametrize("dataset", [Synthetic(40, size=9), Digits("test")], ids=repr)
def test_every_data_set_follows_the_protocol(dataset):
    assert isinstance(dataset, rn.Dataset)
    x, y = dataset.as_arrays()
    assert x.dtype == np.uint8 and len(x) == len(y) == len(dataset)
    picture, label = dataset.read(3)
    assert np.array_equal(picture, x[3]) and label == y[3]
    assert len(dataset.classes) == dataset.num_classes == y.max() + 1
    assert repr(dataset).startswith(type(dataset).__name__ + "(")


def test_digits_are_every_fifth_for_test():
    train, test = Digits("train"), Digits("test")
    assert (len(train), len(test)) == (1438, 359)
    from sklearn.datasets import load_digits

    source = load_digits()
    x, y = test.as_arrays()
    assert y.tolist() == source.target[4::5].tolist()
    assert np.array_equal(np.rint(x * (16 / 255)), source.images[4::5])
    assert x.max() == 255 and x.min() == 0
    with pytest.raises(ValueError, match="split = 'valid' is not allowed; it takes 'train' or"):
        Digits("valid")


def test_synthetic_is_a_function_of_its_arguments():
    a, b = Synthetic(30, size=(5, 7), seed=2), Synthetic(30, size=(5, 7), seed=2)
    assert np.array_equal(a.as_arrays()[0], b.as_arrays()[0])
    assert a.as_arrays()[0].shape == (30, 5, 7, 3)
    other = Synthetic(30, size=(5, 7), seed=2, split="test").as_arrays()[0]
    assert not np.array_equal(a.as_arrays()[0], other)
    # The same patterns: pictures of one class differ by noise only.
    distance = np.abs(a.as_arrays()[0].astype(int) - other).mean()
    assert distance < np.abs(a.as_arrays()[0].astype(int) - np.roll(other, 1, axis=0)).mean()
    with pytest.raises(ValueError, match="channels = 5"):
        Synthetic(10, channels=5)


class TestMNIST:
    x = np.arange(6 * 5 * 4, dtype=np.uint8).reshape(6, 5, 4)
    y = np.array([0, 9, 3, 1, 1, 2], np.uint8)

    def write(self, folder, prefix="train", compress=False, dotted=False):
        folder.mkdir(parents=True, exist_ok=True)
        for kind, array in (("images-idx3", self.x), ("labels-idx1", self.y)):
            name = f"{prefix}-{kind}-ubyte"
            if dotted:
                name = name.replace("-idx", ".idx")
            if compress:
                (folder / f"{name}.gz").write_bytes(gzip.compress(idx(array)))
            else:
                (folder / name).write_bytes(idx(array))

    @pytest.mark.parametrize("below", ["", "raw", "MNIST/raw"])
    @pytest.mark.parametrize("compress", [False, True])
    def test_layouts(self, tmp_path, below, compress):
        self.write(tmp_path / below, compress=compress)
        x, y = MNIST(tmp_path).as_arrays()
        assert np.array_equal(x, self.x) and y.tolist() == self.y.tolist()

    def test_other_names_and_fashion(self, tmp_path):
        self.write(tmp_path / "FashionMNIST" / "raw", "t10k", dotted=True)
        fashion = FashionMNIST(tmp_path, "test")
        assert len(fashion) == 6 and fashion.classes[9] == "Ankle boot"
        with pytest.raises(FileNotFoundError, match="MNIST test is not in"):
            MNIST(tmp_path, "test")

    def test_missing_files_say_what_was_looked_for(self, tmp_path):
        with pytest.raises(FileNotFoundError, match=r"MNIST/raw/train-images-idx3-ubyte.gz"):
            MNIST(tmp_path)
        self.write(tmp_path)
        (tmp_path / "train-labels-idx1-ubyte").unlink()
        with pytest.raises(FileNotFoundError, match=r"looked for\n.*train-labels-idx1-ubyte"):
            MNIST(tmp_path)

    def test_damaged_files_are_named(self, tmp_path):
        self.write(tmp_path)
        file = tmp_path / "train-images-idx3-ubyte"
        whole = file.read_bytes()
        for bad, text in (
            (whole[:-1], "holds 119 bytes after its header, which says 6 x 5 x 4 = 120"),
            (whole[:3], "is no IDX file of bytes: it begins with 00 00 08"),
            (b"\0\0\x0d" + whole[3:], "is no IDX file of bytes"),
            (whole[:10], "is cut: 10 bytes"),
            (gzip.compress(whole)[:-9], "is a damaged gzip file"),
        ):
            file.write_bytes(bad)
            with pytest.raises(ValueError, match=f"train-images-idx3-ubyte {text}"):
                MNIST(tmp_path)
        file.write_bytes(whole)
        (tmp_path / "train-labels-idx1-ubyte").write_bytes(idx(self.y + 1))
        with pytest.raises(ValueError, match="label 10 of sample 1 .*labels-idx1-ubyte"):
            MNIST(tmp_path)
        (tmp_path / "train-labels-idx1-ubyte").write_bytes(idx(self.y[:4]))
        with pytest.raises(ValueError, match=r"has shape \(6, 5, 4\) and .* has shape \(4,\)"):
            MNIST(tmp_path)

    def test_the_real_files(self):
        for split, count, first in (("train", 60000, 5), ("test", 10000, 7)):
            mnist = MNIST(real_data("mnist"), split)
            x, y = mnist.as_arrays()
            assert x.shape == (count, 28, 28) and y[0] == first
            assert set(np.unique(y)) == set(range(10))


@given(st.lists(st.integers(0, 5), min_size=1, max_size=4), st.integers(0, 2**32 - 1))
@settings(max_examples=50, deadline=None)
def test_idx_round_trip(tmp_path_factory, shape, seed):
    array = np.random.default_rng(seed).integers(0, 256, shape).astype(np.uint8)
    path = tmp_path_factory.mktemp("idx") / "file"
    path.write_bytes(idx(array))
    assert np.array_equal(read_idx(path), array)


class TestCIFAR:
    def planes(self, count, seed=0):
        return np.random.default_rng(seed).integers(0, 256, (count, 3072)).astype(np.uint8)

    def test_binary_ten(self, tmp_path):
        folder = tmp_path / "cifar-10-batches-bin"
        folder.mkdir()
        for k in range(1, 6):
            rows = np.hstack([np.full((4, 1), k, np.uint8), self.planes(4, k)])
            (folder / f"data_batch_{k}.bin").write_bytes(rows.tobytes())
        for root in (tmp_path, folder):
            x, y = CIFAR10(root).as_arrays()
            assert x.shape == (20, 32, 32, 3) and y.tolist() == sorted([1, 2, 3, 4, 5] * 4)
            assert np.array_equal(x[5], self.planes(4, 2)[1].reshape(3, 32, 32).transpose(1, 2, 0))
        with pytest.raises(FileNotFoundError, match="CIFAR10 test is not in"):
            CIFAR10(tmp_path, "test")
        (folder / "data_batch_3.bin").write_bytes(b"12345")
        with pytest.raises(ValueError, match="data_batch_3.bin has 5 bytes, which is no number of"):
            CIFAR10(tmp_path)
        (folder / "data_batch_3.bin").unlink()
        with pytest.raises(FileNotFoundError, match=r"\(data_batch_3.bin missing\)"):
            CIFAR10(tmp_path)

    def test_binary_hundred(self, tmp_path):
        rows = np.hstack([[[3, 99], [1, 0]], self.planes(2)]).astype(np.uint8)
        (tmp_path / "train.bin").write_bytes(rows.tobytes())
        (tmp_path / "fine_label_names.txt").write_text("\n".join(f"name{k}" for k in range(100)))
        cifar = CIFAR100(tmp_path)
        assert cifar.as_arrays()[1].tolist() == [99, 0] and cifar.classes[99] == "name99"

    @pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
    def test_python_batches_of_any_protocol(self, tmp_path, protocol):
        planes = self.planes(3)
        batch = {"data": planes, "labels": [4, 0, 9], "filenames": ["a", "b", "c"]}
        (tmp_path / "test_batch").write_bytes(pickle.dumps(batch, protocol=protocol))
        x, y = CIFAR10(tmp_path, "test").as_arrays()
        assert np.array_equal(x, planes.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
        assert y.tolist() == [4, 0, 9]

    def test_python_two_batches(self, tmp_path):
        """As the published files are: byte strings of Python 2, NumPy of 2009."""
        planes = self.planes(2)

        def text(data):
            return b"U" + bytes([len(data)]) + data  # SHORT_BINSTRING

        raw = planes.tobytes()
        data = (
            b"\x80\x02}q\x01(" + text(b"batch_label") + text(b"testing batch 1 of 1")
            + text(b"labels") + b"]q\x02(K\x07K\x02e" + text(b"data")
            + b"cnumpy.core.multiarray\n_reconstruct\nq\x03cnumpy\nndarray\nq\x04K\x00\x85"
            + text(b"b") + b"\x87Rq\x05(K\x01K\x02M\x00\x0c\x86cnumpy\ndtype\nq\x06" + text(b"u1")
            + b"K\x00K\x01\x87Rq\x07(K\x03" + text(b"|") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xff"
            + b"K\x00tb\x89" + b"T" + struct.pack("<I", len(raw)) + raw + b"tbu."
        )  # fmt: skip
        expected = pickle.loads(data, encoding="bytes")  # noqa: S301  our own bytes, as a witness
        assert np.array_equal(expected[b"data"], planes)
        (tmp_path / "test_batch").write_bytes(data)
        x, y = CIFAR10(tmp_path, "test").as_arrays()
        assert np.array_equal(x, planes.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
        assert y.tolist() == [7, 2]

    def test_python_hundred_with_names(self, tmp_path):
        folder = tmp_path / "cifar-100-python"
        folder.mkdir()
        batch = {b"data": self.planes(2), b"fine_labels": [99, 1], b"coarse_labels": [0, 0]}
        (folder / "test").write_bytes(pickle.dumps(batch, protocol=2))
        names = [f"n{k}" for k in range(100)]
        (folder / "meta").write_bytes(pickle.dumps({"fine_label_names": names}, protocol=2))
        cifar = CIFAR100(tmp_path, "test")
        assert cifar.as_arrays()[1].tolist() == [99, 1] and cifar.classes == tuple(names)

    def test_files_that_hold_something_else_are_named(self, tmp_path):
        for batch, text in (
            ({"labels": [1]}, "holds no 'data'"),
            ({"data": self.planes(2), "labels": [1]}, "holds no list 'labels' of 2"),
            ([1, 2], "holds no 'data'"),
        ):
            (tmp_path / "test_batch").write_bytes(pickle.dumps(batch))
            with pytest.raises(ValueError, match=f"test_batch {text}"):
                CIFAR10(tmp_path, "test")


class TestImageFolder:
    @pytest.fixture
    def root(self, tmp_path):
        """Classes '10', '2', 'B', 'a'; dot-files, notes, a folder within."""
        for name, count in (("10", 2), ("2", 3), ("B", 1), ("a", 1)):
            (tmp_path / "train" / name).mkdir(parents=True)
            for k in range(count):
                picture = odd.jpeg(odd.scene(8, 9, seed=k))
                (tmp_path / "train" / name / f"{10 - k}.JPEG").write_bytes(picture)
        (tmp_path / "train" / "2" / "more").mkdir()
        (tmp_path / "train" / "2" / "more" / "z.png").write_bytes(odd.jpeg(odd.scene(8, 9)))
        (tmp_path / "train" / "2" / ".DS_Store").write_bytes(b"x")
        (tmp_path / "train" / ".git").mkdir()
        (tmp_path / "train" / "a" / "notes.txt").write_text("no picture")
        return tmp_path

    def test_order_is_by_bytes(self, root):
        folder = ImageFolder(root / "train")
        assert folder.classes == ("10", "2", "B", "a") and folder.num_classes == 4
        names = [os.path.relpath(path, root / "train") for path in folder.paths]
        assert names == [
            "10/10.JPEG", "10/9.JPEG",
            "2/10.JPEG", "2/8.JPEG", "2/9.JPEG", "2/more/z.png",
            "B/10.JPEG", "a/10.JPEG",
        ]  # fmt: skip
        assert folder.labels().tolist() == [0, 0, 1, 1, 1, 1, 2, 3]

    def test_other_splits_take_the_classes_of_train(self, root):
        (root / "val" / "B").mkdir(parents=True)
        (root / "val" / "B" / "x.jpg").write_bytes(odd.jpeg(odd.scene(8, 9)))
        for folder in (
            ImageFolder(root, "val"),
            ImageFolder(root / "val", classes=ImageFolder(root, "train")),
            ImageFolder(root / "val", classes=["10", "2", "B", "a"]),
        ):
            assert folder.num_classes == 4 and folder.labels().tolist() == [2]

    def test_in_memory_and_from_files_are_the_same(self, root):
        settings = {"batch_size": 3, "shuffle": True, "seed": 1, "workers": 2}
        memory = rn.Loader(ImageFolder(root, "train", in_memory=True), **settings)
        files = rn.Loader(
            ImageFolder(root, "train", in_memory=False),
            transforms=(rn.Resize((8, 9)),), **settings,
        )  # fmt: skip
        assert "pictures in memory" in memory.report() and "picture files" in files.report()
        for a, b in zip(memory.epoch(0), files.epoch(0), strict=True):
            assert a.ids.tolist() == b.ids.tolist() and a.y.tolist() == b.y.tolist()
            np.testing.assert_allclose(a.x, b.x, atol=1e-6)  # resizing to its own size is exact

    def test_pictures_of_different_size(self, root):
        (root / "train" / "B" / "large.jpg").write_bytes(odd.jpeg(odd.scene(11, 9)))
        assert ImageFolder(root, "train").as_arrays() is None
        with pytest.raises(ValueError, match="in_memory=True needs pictures of one size"):
            ImageFolder(root, "train", in_memory=True).as_arrays()

    def test_grey(self, root):
        x, _ = ImageFolder(root, "train", channels=1).as_arrays()
        assert x.shape == (8, 8, 9, 1)
        with pytest.raises(ValueError, match="channels = 2 is not allowed"):
            ImageFolder(root, "train", channels=2)

    def test_identity_changes_with_names_and_labels_not_with_place(self, root, tmp_path):
        first = ImageFolder(root, "train").identity()
        os.rename(root / "train", root / "moved")
        assert ImageFolder(root / "moved").identity() == first
        os.rename(root / "moved" / "B" / "10.JPEG", root / "moved" / "B" / "11.JPEG")
        assert ImageFolder(root / "moved").identity() != first

    def test_real_cifar_folders(self, tmp_path_factory):
        if not hasattr(tarfile, "data_filter"):
            pytest.skip("this Python cannot extract archives safely")
        archive = real_data("cifar10-jpeg.tar.xz")
        folder = tmp_path_factory.mktemp("cifar")
        with tarfile.open(archive) as tar:  # the first hundred of each class of the test set
            for member in tar:
                if not member.name.startswith("test"):
                    break
                if member.name[-8:] < "0100.jpg":
                    tar.extract(member, folder, filter="data")
        cifar = ImageFolder(folder, "test")
        x, y = cifar.as_arrays()
        assert x.shape == (1000, 32, 32, 3) and cifar.classes == CIFAR10.classes
        assert np.bincount(y).tolist() == [100] * 10
        transforms = [rn.Pad(4), rn.RandomCrop(32), rn.Normalize("cifar10")]
        settings = {"batch_size": 64, "shuffle": True, "seed": 1, "transforms": transforms}
        memory = rn.Loader(cifar, **settings)
        files = rn.Loader(ImageFolder(folder, "test", in_memory=False), **settings)
        for a, b in zip(memory.epoch(0), files.epoch(0), strict=True):
            assert a.x.tobytes() == b.x.tobytes() and a.y.tolist() == b.y.tolist()


class TestSplit:
    def test_parts_are_disjoint_and_complete(self):
        dataset = Synthetic(100, size=4)
        rest, part = rn.split(dataset, 0.2, seed=3)
        assert (len(rest), len(part)) == (80, 20)
        assert sorted([*rest.indices, *part.indices]) == list(range(100))
        assert sorted(part.indices) == list(part.indices)
        again = rn.split(dataset, 0.2, seed=3)[1]
        assert again.indices.tolist() == part.indices.tolist()
        assert rn.split(dataset, 0.2, seed=4)[1].indices.tolist() != part.indices.tolist()
        assert part.num_classes == 10 and part.identity()["of"]["type"] == "synthetic"

    def test_parts_load_as_the_whole_does(self):
        dataset = Synthetic(50, size=4)
        x, y = dataset.as_arrays()
        part = rn.split(dataset, 0.5)[1]
        batch = rn.Loader(part, batch_size=25, workers=0).batch_at(0, 0)
        expected = x[part.indices].transpose(0, 3, 1, 2)
        np.testing.assert_allclose(batch.x, expected / 255, rtol=1e-6)
        assert batch.y.tolist() == y[part.indices].tolist()

    def test_python_data_sets_are_split_too(self):
        class Own:
            def __len__(self):
                return 10

            def read(self, index):
                return np.full((2,), index, np.float32), index

            def name(self, index):
                return f"file-{index}"

        rest, part = rn.split(Own(), 0.3, seed=1)
        batch = rn.Loader(part, batch_size=3, workers=0).batch_at(0, 0)
        assert batch.y.tolist() == part.indices.tolist() == batch.x[:, 0].tolist()
        assert part.name(0) == f"file-{part.indices[0]}"

    @pytest.mark.parametrize("fraction", [0, 1, -0.1, 1.5, 0.001])
    def test_bad_fractions(self, fraction):
        with pytest.raises(ValueError, match=r"fraction|parts of"):
            rn.split(Synthetic(20, size=2), fraction)

    def test_a_fraction_is_a_number(self):
        with pytest.raises(TypeError, match="fraction = '0.2'"):
            rn.split(Synthetic(20, size=2), "0.2")


def test_arrays_with_class_names():
    x = np.zeros((4, 2), np.float32)
    dataset = ArrayDataset(x, [0, 1, 1, 0], classes=["no", "yes"])
    assert (dataset.num_classes, dataset.classes) == (2, ("no", "yes"))
    with pytest.raises(ValueError, match="num_classes = 3, but classes has 2"):
        ArrayDataset(x, [0, 1, 1, 0], classes=["no", "yes"], num_classes=3)
    with pytest.raises(ValueError, match=r"label 2 of sample 1 \(row b\)"):
        ArrayDataset(x, [0, 2, 1, 0], num_classes=2, names=["row a", "row b", "row c", "row d"])
