import warnings

import numpy as np
import pytest
from PIL import Image
from torchvision import transforms

from scs_eval.data.decode import UnreadableImageError, read_image
from scs_eval.errors import InputError


def reread(image, tmp_path, name="image.png", size=None, **options):
    image.save(tmp_path / name, **options)
    return read_image(tmp_path / name, size=size)


def pixel(planes, row, column):
    return planes[:, row, column].tolist()


def expected(*rgb):
    return (np.array(rgb, dtype=np.float32) / np.float32(255)).tolist()


def test_rgb(tmp_path):
    values = np.random.default_rng(0).integers(0, 256, (4, 6, 3), dtype=np.uint8)
    planes = reread(Image.fromarray(values), tmp_path)
    assert planes.dtype == np.float32
    assert planes.shape == (3, 4, 6)
    assert np.array_equal(planes, values.transpose(2, 0, 1).astype(np.float32) / np.float32(255))


def test_greyscale(tmp_path):
    planes = reread(Image.fromarray(np.array([[0, 51], [128, 255]], dtype=np.uint8)), tmp_path)
    assert pixel(planes, 0, 1) == expected(51, 51, 51)
    assert pixel(planes, 1, 1) == [1, 1, 1]


def test_one_bit(tmp_path):
    image = Image.new("1", (2, 1))
    image.putpixel((1, 0), 1)
    planes = reread(image, tmp_path)
    assert pixel(planes, 0, 0) == [0, 0, 0]
    assert pixel(planes, 0, 1) == [1, 1, 1]


def test_rgba_on_white(tmp_path):
    image = Image.new("RGBA", (3, 1))
    image.putdata([(200, 100, 50, 255), (200, 100, 50, 0), (0, 0, 0, 51)])
    planes = reread(image, tmp_path)
    assert pixel(planes, 0, 0) == expected(200, 100, 50)
    assert pixel(planes, 0, 1) == [1, 1, 1]
    assert pixel(planes, 0, 2) == expected(204, 204, 204)  # a fifth black, four fifths white


def test_grey_with_alpha_on_white(tmp_path):
    image = Image.new("LA", (2, 1))
    image.putdata([(77, 255), (77, 0)])
    planes = reread(image, tmp_path)
    assert pixel(planes, 0, 0) == expected(77, 77, 77)
    assert pixel(planes, 0, 1) == [1, 1, 1]


def palette_image():
    image = Image.new("P", (2, 1))
    image.putpalette([10, 20, 30, 200, 100, 0])
    image.putdata([0, 1])
    return image


@pytest.mark.parametrize("name", ["image.png", "image.gif", "image.bmp"])
def test_palette(tmp_path, name):
    planes = reread(palette_image(), tmp_path, name)
    assert pixel(planes, 0, 0) == expected(10, 20, 30)
    assert pixel(planes, 0, 1) == expected(200, 100, 0)


@pytest.mark.parametrize(("name", "transparency"), [("a.png", 1), ("a.gif", 1), ("a.png", b"\xff\x00")])
def test_transparent_palette_on_white(tmp_path, name, transparency):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        planes = reread(palette_image(), tmp_path, name, transparency=transparency)
    assert pixel(planes, 0, 0) == expected(10, 20, 30)
    assert pixel(planes, 0, 1) == [1, 1, 1]


def test_a_colour_declared_transparent(tmp_path):
    image = Image.new("RGB", (2, 1), (1, 2, 3))
    image.putpixel((1, 0), (4, 5, 6))
    planes = reread(image, tmp_path, transparency=(1, 2, 3))
    assert pixel(planes, 0, 0) == [1, 1, 1]
    assert pixel(planes, 0, 1) == expected(4, 5, 6)


def sixteen_bits():
    return np.array([[0, 1], [13107, 65535]], dtype=np.uint16)


@pytest.mark.parametrize("name", ["image.png", "image.tif"])
def test_sixteen_bits_keep_their_depth(tmp_path, name):
    planes = reread(Image.fromarray(sixteen_bits()), tmp_path, name)
    wanted = sixteen_bits().astype(np.float32) / np.float32(65535)
    assert all(np.array_equal(plane, wanted) for plane in planes)
    assert planes[0, 1, 0] == np.float32(0.2)


def test_sixteen_bits_big_endian(tmp_path):
    header = b"P5 2 2 65535\n"  # Pillow opens these in mode I
    (tmp_path / "image.pgm").write_bytes(header + sixteen_bits().astype(">u2").tobytes())
    wanted = sixteen_bits().astype(np.float32) / np.float32(65535)
    assert np.array_equal(read_image(tmp_path / "image.pgm")[1], wanted)


def test_sixteen_bits_with_a_transparent_value(tmp_path):
    planes = reread(Image.fromarray(sixteen_bits()), tmp_path, transparency=13107)
    assert pixel(planes, 1, 0) == [1, 1, 1]
    assert pixel(planes, 0, 0) == [0, 0, 0]


def test_sixteen_bits_are_scaled_without_rounding_to_eight(tmp_path):
    values = np.array([[0, 3], [3, 6]], dtype=np.uint16)
    planes = reread(Image.fromarray(values), tmp_path, size=1)
    assert planes.shape == (3, 1, 1)
    assert planes[:, 0, 0] == pytest.approx([3 / 65535] * 3, rel=1e-6)  # float32


def test_cmyk(tmp_path):
    image = Image.new("CMYK", (3, 1))
    image.putdata([(0, 255, 0, 0), (0, 0, 0, 255), (0, 0, 0, 0)])
    planes = reread(image, tmp_path, "image.tif")
    assert pixel(planes, 0, 0) == [1, 0, 1]
    assert pixel(planes, 0, 1) == [0, 0, 0]
    assert pixel(planes, 0, 2) == [1, 1, 1]


def test_cmyk_jpeg(tmp_path):
    planes = reread(Image.new("CMYK", (16, 16), (0, 255, 255, 0)), tmp_path, "image.jpg", quality=95)
    assert np.allclose(planes.mean((1, 2)), [1, 0, 0], atol=2 / 255)  # JPEG is lossy


# What a viewer must do with the stored rows to show the image upright (EXIF 2.3, tag 0x0112).
UPRIGHT = {
    1: lambda a: a,
    2: lambda a: a[:, ::-1],
    3: lambda a: a[::-1, ::-1],
    4: lambda a: a[::-1],
    5: lambda a: a.swapaxes(0, 1),
    6: lambda a: np.rot90(a, -1),
    7: lambda a: a[::-1, ::-1].swapaxes(0, 1),
    8: lambda a: np.rot90(a),
}


@pytest.mark.parametrize("orientation", UPRIGHT)
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_exif_orientation(tmp_path, orientation, dtype):
    stored = np.arange(6, dtype=dtype).reshape(2, 3) * 40
    exif = Image.Exif()
    exif[0x0112] = orientation
    planes = reread(Image.fromarray(stored), tmp_path, exif=exif)
    assert np.array_equal(planes[0], UPRIGHT[orientation](stored).astype(np.float32) / np.iinfo(dtype).max)


def test_size_cuts_out_the_centre(tmp_path):
    values = np.random.default_rng(0).integers(0, 256, (20, 40, 3), dtype=np.uint8)
    for size in (10, 20, 50):
        scaled = Image.fromarray(values).resize((2 * size, size), Image.Resampling.BILINEAR)
        wanted = np.asarray(scaled)[:, size // 2 : size // 2 + size].transpose(2, 0, 1) / 255
        wide = reread(Image.fromarray(values), tmp_path, size=size)
        tall = reread(Image.fromarray(values.swapaxes(0, 1)), tmp_path, size=size)
        assert wide.shape == tall.shape == (3, size, size)
        assert np.allclose(wide, wanted, atol=1e-6)  # float32
        # The passes come in the other order, and each rounds to 8 bits.
        assert np.allclose(tall, wanted.swapaxes(1, 2), atol=1.01 / 255)


@pytest.mark.parametrize("shape", [(300, 401), (401, 300), (256, 256), (90, 131)])
def test_resize_is_torchvisions_evaluation_of_imagenet(tmp_path, shape):
    values = np.random.default_rng(0).integers(0, 256, (*shape, 3), dtype=np.uint8)
    Image.fromarray(values).save(tmp_path / "image.png")
    steps = [transforms.Resize(256), transforms.CenterCrop(224), transforms.ToTensor()]  # bilinear, antialiased
    wanted = transforms.Compose(steps)(Image.fromarray(values)).numpy()
    assert np.array_equal(read_image(tmp_path / "image.png", size=224, resize=256), wanted)


def test_scaling_down_averages(tmp_path):
    stripes = np.zeros((64, 64), dtype=np.uint8)
    stripes[:, ::2] = 255
    planes = reread(Image.fromarray(stripes), tmp_path, size=8)
    # Without antialiasing a stripe is hit or missed and the result is 0 or 1.
    assert np.allclose(planes, 0.5, atol=0.05)


@pytest.mark.parametrize("name", ["image.png", "image.jpg", "image.gif", "image.bmp", "image.webp", "image.tif"])
def test_truncated(tmp_path, name):
    values = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    Image.fromarray(values).save(tmp_path / name)
    content = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(content[: len(content) // 2])
    with pytest.raises(UnreadableImageError, match=rf"expected a readable image, got .*{name} \(.+\); repair"):
        read_image(tmp_path / name)


@pytest.mark.parametrize("content", [b"", b"no image", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 1 1\n"])
def test_not_an_image(tmp_path, content):
    (tmp_path / "image.png").write_bytes(content)
    with pytest.raises(UnreadableImageError, match=r"image.png \(none of BMP, .*skip such files with --skip-bad"):
        read_image(tmp_path / "image.png")


@pytest.mark.parametrize("side", [4, 8])  # more than the limit Pillow warns, more than twice it raises
def test_decompression_bomb(tmp_path, monkeypatch, side):
    Image.new("RGB", (side, side)).save(tmp_path / "image.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 12)
    with pytest.raises(InputError, match="more than 12 pixels, perhaps a decompression bomb"):
        read_image(tmp_path / "image.png")


@pytest.mark.parametrize(
    ("dtype", "value", "reason"),
    [(np.float32, 0.5, "floating-point"), (np.int32, 65536, "32-bit"), (np.int32, -1, "32-bit")],
)
def test_unknown_range(tmp_path, dtype, value, reason):
    with pytest.raises(UnreadableImageError, match=reason):
        reread(Image.fromarray(np.full((2, 2), value, dtype=dtype)), tmp_path, "image.tif")


def test_an_endless_strip_is_refused_before_it_is_scaled(tmp_path):
    """60,000×1 pixels would be 15,360,000×256; only the square that is cut out of it is small."""
    Image.new("RGB", (60_000, 1)).save(tmp_path / "strip.png")
    with pytest.raises(UnreadableImageError, match="60000×1 pixels are 15360000×256"):
        read_image(tmp_path / "strip.png", size=224, resize=256)
    assert read_image(tmp_path / "strip.png", size=224).shape == (3, 224, 224)  # cut out first


def test_sizes_beyond_the_memory_are_refused():
    from scs_eval.data import load_data

    with pytest.raises(InputError, match=r"got 8 of 100,000×100,000 pixels \(960 GB\) for one batch"):
        load_data("sample", size=100_000)
