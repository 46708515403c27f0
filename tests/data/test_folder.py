import numpy as np
import pytest
import torch
from PIL import Image

from scs_eval import load_data
from scs_eval.data import folder as folder_module
from scs_eval.data.folder import list_images
from scs_eval.errors import InputError


def save(path, value=0, size=(4, 4)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", size, value).save(path)


@pytest.fixture
def animals(tmp_path):
    """Three cats (values 0, 1, 2) and three dogs (10, 11, 12) of 4×4 pixels."""
    for i in range(3):
        save(tmp_path / "animals" / "dog" / f"{i}.png", 10 + i)
        save(tmp_path / "animals" / "cat" / f"{i}.png", i)
    return tmp_path / "animals"


def values(data):
    """The grey value of each image, which tells which one it is."""
    images = data.images[:]
    assert torch.equal(images, images[:, :1, :1, :1].expand_as(images))
    return (images[:, 0, 0, 0] * 255).round().int().tolist()


def test_by_class_and_name(animals):
    data = load_data(animals)
    assert data.classes == ("cat", "dog")
    assert data.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert data.indices.tolist() == [0, 1, 2, 3, 4, 5]
    assert values(data) == [0, 1, 2, 10, 11, 12]
    assert data.images.shape == (6, 3, 4, 4)
    assert data.source == str(animals)
    assert values(load_data(str(animals))) == values(data)


def test_what_does_not_count(animals):
    save(animals / ".hidden" / "0.png")
    save(animals / "cat" / "._0.png")
    (animals / "cat" / "notes.txt").write_text("no image")
    (animals / "readme.md").write_text("no class")
    (animals / "cat" / "folder.png").mkdir()
    save(animals / "dog" / "3.PNG", 13)
    assert values(load_data(animals)) == [0, 1, 2, 10, 11, 12, 13]


def test_every_suffix_can_be_read(tmp_path):
    for suffix in folder_module.SUFFIXES:
        save(tmp_path / "data" / "grey" / f"image{suffix}", 255)
    assert values(load_data(tmp_path / "data")) == [255] * len(folder_module.SUFFIXES)


def test_n_and_seed(animals):
    data = load_data(animals, n=4, seed=1)
    assert data.labels.tolist() == [0, 0, 1, 1]
    everything = values(load_data(animals))
    assert values(data) == [everything[i] for i in data.indices]
    assert len({tuple(load_data(animals, n=4, seed=seed).indices.tolist()) for seed in range(10)}) > 1


def test_only_what_is_used_is_decoded(animals, monkeypatch):
    decoded = []
    original = folder_module.read_pixels
    monkeypatch.setattr(folder_module, "read_pixels", lambda p, **kw: decoded.append(p) or original(p, **kw))
    data = load_data(animals, n=4)
    assert decoded == []
    data.images[1:3]
    assert decoded == [list_images(animals)[1][i] for i in data.indices[1:3]]


def test_one_size_is_kept_and_others_need_a_size(animals):
    save(animals / "dog" / "big.png", 13, size=(6, 5))
    with pytest.raises(InputError, match=r"squares? images of one size, got 6×5 in .*big.png; give the size"):
        load_data(animals)
    assert load_data(animals, size=3).images.shape == (7, 3, 3, 3)
    assert load_data(animals, size=3, resize=4).images.shape == (7, 3, 3, 3)
    with pytest.raises(InputError, match="resize as a whole number of at least 3, got 2"):
        load_data(animals, size=3, resize=2)
    with pytest.raises(InputError, match="resize 4 needs the size"):
        load_data(animals, resize=4)
    save(animals / "dog" / "big.png", 13, size=(6, 6))
    with pytest.raises(InputError, match="got 6×6"):
        load_data(animals)


def test_one_size_but_not_square(tmp_path):
    save(tmp_path / "data" / "a" / "0.png", size=(4, 6))
    with pytest.raises(InputError, match="got 4×6"):
        load_data(tmp_path / "data")


@pytest.mark.parametrize("size", [8, 32, 50])
def test_scales_like_the_sample(tmp_path, size):
    sample = load_data("sample", n=10, size=size)
    for i, image in enumerate(load_data("sample", n=10).images):
        path = tmp_path / "data" / "class" / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray((image * 255).round().byte().permute(1, 2, 0).numpy()).save(path)
    # Pillow rounds to 8 bits after each of its two passes; half a step each, and a little for its fixed-point weights.
    assert torch.allclose(load_data(tmp_path / "data", size=size).images[:], sample.images, atol=1.1 / 255)


def test_missing(tmp_path):
    with pytest.raises(InputError, match=r"got .*nowhere; there is no such folder"):
        load_data(tmp_path / "nowhere")


def test_one_image(tmp_path):
    save(tmp_path / "image.png", 7)
    data = load_data(tmp_path / "image.png")
    assert (values(data), data.labels.tolist(), data.labelled, data.classes) == ([7], [-1], False, ())
    assert "1 images of 3×4×4, no labels" in repr(data)
    assert load_data(tmp_path / "image.png", num_classes=10).classes[3] == "cat"
    (tmp_path / "text.png").write_text("no image")
    with pytest.raises(InputError, match=r"readable image, got .*text.png"):
        load_data(tmp_path / "text.png")


def test_empty(tmp_path):
    with pytest.raises(InputError, match=r"expected images \(.*\) or one folder per class in .*, got none"):
        load_data(tmp_path)


def test_images_without_class_folders_have_no_labels(tmp_path):
    for i in range(3):
        save(tmp_path / f"{i}.png", i)
    data = load_data(tmp_path, n=2, seed=1)
    assert not data.labelled
    assert values(data) == data.indices.tolist()
    assert len(data) == 2


def test_empty_class_folder(animals):
    (animals / "bird").mkdir()
    with pytest.raises(
        InputError, match=r"expected images \(.*\.png.*\) directly in the class folder .*bird, got none"
    ):
        load_data(animals)


def test_the_folder_above_is_not_taken_for_classes(animals):
    with pytest.raises(InputError, match=r"class folder .*animals, got none; .*folder that holds the class folders"):
        load_data(animals.parent)


def truncate(path):
    path.write_bytes(path.read_bytes()[:40])  # the header and not quite the pixels


def test_truncated_image(animals):
    truncate(animals / "cat" / "1.png")
    with pytest.raises(InputError, match=r"readable image, got .*1.png \(.*\); .*--skip-bad"):
        load_data(animals).images[:]


def test_skip_bad(animals, recwarn):
    assert len(load_data(animals, skip_bad=True)) == 6
    assert len(recwarn) == 0
    truncate(animals / "cat" / "1.png")
    (animals / "dog" / "0.png").write_text("no image")
    with pytest.warns(UserWarning, match=r"^skipped 2 unreadable images, the first .*cat.1.png$") as warned:
        data = load_data(animals, skip_bad=True)
    assert warned[0].filename == __file__  # points at the caller
    assert values(data) == [0, 2, 11, 12]
    assert data.indices.tolist() == [0, 2, 4, 5]
    assert data.labels.tolist() == [0, 0, 1, 1]


def test_skip_bad_still_gives_n(animals):
    chosen = load_data(animals, n=4).indices.tolist()
    truncate(list_images(animals)[1][chosen[0]])
    with pytest.warns(UserWarning, match="skipped 1 unreadable image,"):
        data = load_data(animals, n=4, skip_bad=True)
    assert data.labels.tolist() == [0, 0, 1, 1]
    assert set(chosen[1:]) < set(data.indices.tolist())
    assert chosen[0] not in data.indices


def test_n_larger_than_what_is_readable(animals):
    truncate(animals / "cat" / "1.png")
    with pytest.raises(InputError, match=r"at most 5, .* got 6"):
        load_data(animals, n=6, skip_bad=True)
    with pytest.raises(InputError, match=r"at most 6, .* got 7"):
        load_data(animals, n=7)


def test_nothing_readable(animals):
    for path in list_images(animals)[1]:
        path.write_text("no image")
    with pytest.raises(InputError, match="expected readable images, got 6 unreadable ones"):
        load_data(animals, skip_bad=True)


def test_worker_processes_read_the_same_in_order_and_their_errors_are_one_line(tmp_path, monkeypatch):
    shades = np.random.default_rng(0).permutation(100).tolist()
    for i, shade in enumerate(shades):
        save(tmp_path / "data" / "grey" / f"{i:03}.png", shade, size=(1, 1))
    images = load_data(tmp_path / "data").images
    monkeypatch.setattr("scs_eval.images.useful_workers", lambda count: 2)
    before = torch.get_rng_state()
    parts = [slice(0, 30), torch.tensor([5, 90]), slice(95, 100)]
    read = [(batch[:, 0, 0, 0] * 255).round().int().tolist() for batch in images.batches(parts)]
    assert read == [shades[:30], [shades[5], shades[90]], shades[95:]]
    assert torch.equal(before, torch.get_rng_state())
    truncate(tmp_path / "data" / "grey" / "050.png")
    with pytest.raises(InputError, match=r"^expected a readable image, got .*050.png") as caught:
        list(images.batches([*parts, slice(45, 55)]))
    assert "\n" not in str(caught.value)


def test_only_some_indices(animals):
    assert values(load_data(animals, indices=[5, 0])) == [0, 12]
    assert values(load_data(animals, exclude=[0, 1, 2, 77])) == [10, 11, 12]
    assert load_data(animals, indices=[0, 1, 3], exclude=[1], n=2).indices.tolist() == [0, 3]
    with pytest.raises(InputError, match=r"no image with index 9 in .*animals; the nearest are 3, 4, 5"):
        load_data(animals, indices=[9])
    with pytest.raises(InputError, match="none of the 6 images"):
        load_data(animals, exclude=range(6))


def test_an_image_that_changes_has_another_digest(animals):
    before = load_data(animals).images.digest()
    assert load_data(animals).images.digest() == before
    assert load_data(animals, size=3).images.digest() != before
    assert load_data(animals, n=4).images.digest() != before
    save(animals / "cat" / "0.png", 77)
    assert load_data(animals).images.digest() != before


def test_images_are_copied_in_order(tmp_path):
    shades = np.random.default_rng(0).permutation(100).tolist()
    for i, shade in enumerate(shades):
        save(tmp_path / "data" / "grey" / f"{i:03}.png", shade, size=(1, 1))
    assert values(load_data(tmp_path / "data")) == shades
