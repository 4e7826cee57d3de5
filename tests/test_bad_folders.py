"""Folders that are no data set: each mistake is named, with the way out."""

import logging

import odd_pictures as odd
import pytest

import renaissance as rn
from renaissance.datasets import ImageFolder

JPEG = odd.jpeg(odd.scene(12, 12))


@pytest.fixture
def root(tmp_path):
    """train/ and test/ with two pictures of a cat and of a dog each."""
    for split in ("train", "test"):
        for name in ("cat", "dog"):
            put(tmp_path / split / name / "1.jpg")
            put(tmp_path / split / name / "2.jpg")
    return tmp_path


def put(path, content=JPEG):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def test_the_folder_itself_is_sound(root):
    for split in ("train", "test"):
        assert ImageFolder(root, split).labels().tolist() == [0, 0, 1, 1]


def test_no_folder_and_nothing_in_it(root):
    with pytest.raises(FileNotFoundError, match=r"absent is no folder; it takes one with a folder"):
        ImageFolder(root / "absent")
    (root / "bare").mkdir()
    with pytest.raises(ValueError, match="bare holds no folders; it takes one for each class"):
        ImageFolder(root, "bare")


def test_no_pictures_at_all(root):
    put(root / "notes" / "cat" / "1.txt")
    (root / "notes" / "dog").mkdir()
    with pytest.raises(ValueError, match=r"holds no pictures in its 2 class folders; .* \.jpg"):
        ImageFolder(root, "notes")


def test_an_empty_class(root):
    (root / "train" / "eel").mkdir()
    with pytest.raises(ValueError, match=r"train/eel: a class folder without pictures .*classes="):
        ImageFolder(root, "train")
    with pytest.raises(ValueError, match="train/eel: a class folder"):
        ImageFolder(root, "test")  # its classes come from train
    put(root / "train" / "fox" / "1.txt")
    with pytest.raises(ValueError, match="train/eel and 1 more: a class folder without"):
        ImageFolder(root, "train")


def test_an_empty_class_that_is_meant(root):
    (root / "train" / "eel").mkdir()
    named = ImageFolder(root, "train", classes=["cat", "dog", "eel"])
    assert named.num_classes == 3 and named.labels().tolist() == [0, 0, 1, 1]


def test_a_class_without_pictures_in_another_split_is_no_mistake(root):
    for path in (root / "test" / "dog").iterdir():
        path.unlink()
    assert ImageFolder(root, "test").labels().tolist() == [0, 0]


def test_a_class_that_train_lacks(root):
    put(root / "test" / "eel" / "1.jpg")
    with pytest.raises(ValueError, match="test has the class folder 'eel', which is none of the 2"):
        ImageFolder(root, "test")


def test_pictures_without_class_folders(root):
    put(root / "flat" / "1.jpg")
    put(root / "flat" / "2.jpg")
    with pytest.raises(ValueError, match=r"flat holds 2 pictures, such as 1.jpg, and no folders"):
        ImageFolder(root, "flat")


def test_pictures_beside_class_folders_are_left_out_aloud(root, caplog):
    put(root / "train" / "stray.jpg")
    with caplog.at_level(logging.WARNING, logger="renaissance"):
        assert len(ImageFolder(root, "train")) == 4
    assert (
        "beside the class folders are of no class and left out: stray.jpg and 0 more" in caplog.text
    )


def test_the_split_was_forgotten(root):
    with pytest.raises(ValueError, match=r"holds splits \(test, train\).*split='test', or give"):
        ImageFolder(root)


def test_class_folders_one_level_deeper(root):
    (root / "packed").mkdir()
    (root / "train").rename(root / "packed" / "pictures")
    with pytest.raises(ValueError, match=r"'pictures', with no pictures but 2 folders in it, such"):
        ImageFolder(root, "packed")
    assert ImageFolder(root / "packed", "pictures").classes == ("cat", "dog")


def test_one_class_and_folders_within_classes_are_no_mistake(root):
    put(root / "single" / "cat" / "1.jpg")
    put(root / "single" / "cat" / "more" / "2.jpg")
    assert ImageFolder(root, "single").labels().tolist() == [0, 0]
    for name in ("cat", "dog"):
        (root / "train" / name).rename(root / name)
        (root / "train" / name).mkdir()
        (root / name).rename(root / "train" / name / "2026")
    assert ImageFolder(root, "train").classes == ("cat", "dog")


@pytest.mark.timeout(60)
@pytest.mark.parametrize("in_memory", ["auto", False])
def test_a_file_that_cannot_be_read(root, in_memory):
    (root / "train" / "cat" / "3.jpg").symlink_to(root / "nowhere")
    folder = ImageFolder(root, "train", in_memory=in_memory)
    loader = rn.Loader(folder, batch_size=5, seed=0)
    with pytest.raises(ValueError, match=r"sample 2 \(.*cat/3.jpg\): cannot be opened: No such"):
        loader.batch_at(0, 0)


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "content,message",
    [(b"", "is empty"), (b"<html></html>", "is no picture"), (JPEG[:200], "cat/3.jpg")],
)
def test_a_file_that_is_no_picture_stops_fit_with_its_name(root, content, message):
    put(root / "train" / "cat" / "3.jpg", content)
    task = rn.Task(rn.models.seq("flatten, linear 2", (3, 12, 12)), seed=1)
    task.loss(rn.CrossEntropyLoss()).optimizer(rn.SGD(lr=0.1))
    with pytest.raises(
        ValueError, match=rf"cat/3.jpg.*{message}" if message[0] == "i" else message
    ):
        task.data(
            rn.Loader(ImageFolder(root, "train"), batch_size=5, transforms=[rn.Resize((12, 12))])
        )
        task.compile(report="none")
        task.fit(epochs=1, verbose=0)
