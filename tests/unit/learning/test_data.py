"""Data by a line of text: digits, IDX files, npz archives, and what is wrong with them."""

from __future__ import annotations

import gzip
import io
import tracemalloc
import zipfile
from importlib import resources
from pathlib import Path

import numpy as np
import pytest

from veilwalk.core.archives import read_archive
from veilwalk.core.errors import InputFileError, InvalidParameterError
from veilwalk.learning import Array, Partition, data_of, load_data, require_fit

SHARED_MNIST = Path(__file__).parents[4] / "shared" / "data" / "mnist"


def test_digits_are_those_of_scikit_learn() -> None:
    """The bundled file, pixel by pixel, split and scaled but otherwise the same."""
    datasets = pytest.importorskip("sklearn.datasets")
    theirs = datasets.load_digits()
    data = load_data("digits", seed=3)
    ours = np.concatenate((data.train.features, data.test.features)) * 16
    labels = np.concatenate((data.train.labels, data.test.labels))

    def in_order(pixels: Array, names: Array) -> Array:
        rows = np.column_stack((names, pixels))
        return rows[np.lexsort(rows.T[::-1])]

    assert np.array_equal(in_order(ours, labels), in_order(theirs.data, theirs.target))
    assert (len(data.train), len(data.test), data.n_features, data.n_classes) == (1438, 359, 64, 10)


def test_digits_are_ready_to_learn_from() -> None:
    """float32 in [0, 1], whole labels; the seed decides what is held out."""
    one, two, other = (load_data("digits", seed=seed) for seed in (0, 0, 1))
    assert one.train.features.dtype == np.float32
    assert one.train.labels.dtype == np.int64
    assert (one.train.features.min(), one.train.features.max()) == (0, 1)
    assert np.array_equal(one.test.features, two.test.features)
    assert not np.array_equal(one.test.features, other.test.features)


def test_the_bundled_file_says_where_it_is_from() -> None:
    """Its licence asks for that."""
    with resources.files("veilwalk.learning").joinpath("digits.npz").open("rb") as stream:
        about = str(np.load(stream, allow_pickle=False)["about"])
    assert "Alpaydin" in about
    assert "CC BY 4.0" in about


def idx(array: Array) -> bytes:
    """An IDX file, written here by its description."""
    header = bytes([0, 0, 8, array.ndim]) + b"".join(length.to_bytes(4, "big") for length in array.shape)
    return header + array.astype(np.uint8).tobytes()


def write_mnist(folder: Path, *, packed: bool = False) -> None:
    rng = np.random.default_rng(0)
    for start, count in (("train", 12), ("t10k", 6)):
        images, labels = rng.integers(0, 256, (count, 4, 5)), np.arange(count) % 3
        for name, array in (("images-idx3", images), ("labels-idx1", labels)):
            content = idx(array)
            path = folder / f"{start}-{name}-ubyte{'.gz' if packed else ''}"
            path.write_bytes(gzip.compress(content) if packed else content)


@pytest.mark.parametrize("packed", [False, True])
def test_idx_files_are_read(tmp_path: Path, *, packed: bool) -> None:
    """Gzipped or not, bytes become numbers in [0, 1]."""
    write_mnist(tmp_path, packed=packed)
    data = load_data(f"mnist:{tmp_path}")
    pixels = np.random.default_rng(0).integers(0, 256, (12, 4, 5))
    assert data.train.features == pytest.approx(pixels.reshape(12, 20) / 255, abs=1e-7)
    assert (data.n_features, data.n_classes, len(data.test)) == (20, 3, 6)
    assert data.train.labels.tolist() == [0, 1, 2] * 4


@pytest.mark.shared_data
@pytest.mark.skipif(not SHARED_MNIST.exists(), reason="MNIST is not beside this checkout")
def test_mnist_itself_is_read() -> None:
    """60,000 and 10,000 images of 28x28, ten classes."""
    data = load_data(f"mnist:{SHARED_MNIST}")
    assert data.train.features.shape == (60_000, 784)
    assert data.test.features.shape == (10_000, 784)
    assert np.bincount(data.train.labels).tolist()[:2] == [5923, 6742]
    assert data.train.features.max() == 1


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda content: content[:-1], "cut short or too long"),
        (lambda content: content + b"x", "cut short or too long"),
        (lambda content: content[:10], "is not an IDX file"),
        (lambda content: b"\0\0\x08\x01" + content[4:], "is not an IDX file"),
        (lambda content: content[:4] + b"\xff" * 12 + content[16:], "cut short or too long"),
    ],
)
def test_damaged_idx_files_are_refused(tmp_path: Path, change: object, says: str, *, packed: bool) -> None:
    """Before memory is taken for what a header merely claims."""
    write_mnist(tmp_path, packed=packed)
    path = tmp_path / f"train-images-idx3-ubyte{'.gz' if packed else ''}"
    content = gzip.decompress(path.read_bytes()) if packed else path.read_bytes()
    content = change(content)  # type: ignore[operator]
    path.write_bytes(gzip.compress(content) if packed else content)
    with pytest.raises(InputFileError, match=says):
        load_data(f"mnist:{tmp_path}")


def test_missing_and_torn_files_are_named(tmp_path: Path) -> None:
    """Folder, file, broken gzip, images without as many labels."""
    with pytest.raises(InputFileError, match="no such folder"):
        load_data(f"mnist:{tmp_path / 'none'}")
    with pytest.raises(InputFileError, match="has no file train-images-idx3-ubyte"):
        load_data(f"mnist:{tmp_path}")
    write_mnist(tmp_path, packed=True)
    path = tmp_path / "train-labels-idx1-ubyte.gz"
    whole = path.read_bytes()
    path.write_bytes(whole[:-9])
    with pytest.raises(InputFileError, match="complete gzip"):
        load_data(f"mnist:{tmp_path}")
    path.write_bytes(gzip.compress(idx(np.zeros(11))))
    with pytest.raises(InputFileError, match="one row of features for each label"):
        load_data(f"mnist:{tmp_path}")


def write_npz(folder: Path, **arrays: object) -> str:
    np.savez(folder / "data.npz", **arrays)  # type: ignore[arg-type]
    return f"npz:{folder / 'data.npz'}"


def test_npz_with_a_test_part_is_taken_as_it_is(tmp_path: Path) -> None:
    """Rows in their order; a further array with an entry for each row is a column."""
    x = np.linspace(0, 1, 40).reshape(10, 2, 2)
    spec = write_npz(
        tmp_path,
        x_train=x,
        y_train=np.arange(10) % 2,
        x_test=x[:5],
        y_test=np.zeros(5, int),
        writer_train=np.arange(10),
    )
    data = load_data(spec)
    assert data.train.features == pytest.approx(x.reshape(10, 4), abs=1e-7)
    assert data.columns["writer"].tolist() == list(range(10))
    assert (data.n_classes, len(data.test)) == (2, 5)


def test_npz_without_a_test_part_is_split(tmp_path: Path) -> None:
    """A fifth is held out; columns follow their rows."""
    spec = write_npz(tmp_path, features=np.arange(50.0)[:, None], labels=np.arange(50) % 3, group=np.arange(50))
    data = load_data(spec, seed=1)
    assert (len(data.train), len(data.test)) == (40, 10)
    assert np.array_equal(data.columns["group"] % 3, data.train.labels)


def test_features_of_other_ranges_are_scaled_by_the_training_part(tmp_path: Path) -> None:
    """Each feature by its own range; what the test part has beyond is cut; a constant one becomes zero."""
    train = np.array([[-10.0, 7, 0], [10, 7, 1], [0, 7, 0.5]])
    test = np.array([[20.0, 7, 0.25], [5, 7, 0], [-30, 7, 1]])
    labels = np.array([0, 1, 0])
    data = load_data(write_npz(tmp_path, x_train=train, y_train=labels, x_test=test, y_test=labels) + ":scale=range")
    assert data.train.features.tolist() == [[0, 0, 0], [1, 0, 1], [0.5, 0, 0.5]]
    assert data.test.features.tolist() == [[1, 0, 0.25], [0.75, 0, 0], [0, 0, 1]]


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        ([0, 5], ("0", "5")),
        ([1, 2, 3], ("1", "2", "3")),
        ([-1, 1], ("-1", "1")),
        ([2, 10], ("2", "10")),
        ([0.0, 1.0], ("0", "1")),
        ([10**9], ("1000000000",)),
        ([False, True], ("0", "1")),
        (["dog", "cat"], ("cat", "dog")),
    ],
)
def test_any_whole_numbers_and_names_are_classes_in_sorted_order(
    tmp_path: Path, labels: list[object], names: tuple[str, ...]
) -> None:
    """No class is made for a number that no row has; both parts are numbered alike."""
    given = np.array(labels * 10)
    data = load_data(
        write_npz(
            tmp_path, x_train=np.zeros((len(given), 1)), y_train=given, x_test=np.zeros((1, 1)), y_test=given[-1:]
        )
    )
    assert (data.class_names, data.n_classes, data.is_regression) == (names, len(names), False)
    assert data.train.labels.dtype == np.int64
    shown = [str(label if isinstance(label, str) else int(label)) for label in given.tolist()]
    assert [names[label] for label in data.train.labels] == shown
    assert names[data.test.labels[0]] == shown[-1]


def test_digits_keep_their_numbers() -> None:
    """What their name says is their number, and nothing about them is scaled again."""
    data = load_data("digits:scale=range")
    assert data.class_names == tuple("0123456789")
    assert (data.scaler.feature_range, data.target_range, data.is_regression) == (None, None, False)


def test_real_labels_are_regression(tmp_path: Path) -> None:
    """Scaled by the range of the training part, which is kept; what the test part has beyond stays beyond."""
    x, y = np.linspace(0, 1, 10)[:, None], np.linspace(-5, 15.5, 10)
    data = load_data(write_npz(tmp_path, x_train=x, y_train=y, x_test=x, y_test=np.full(10, 36)) + ":scale=range")
    assert data.is_regression
    assert (data.n_classes, data.class_names, data.target_range) == (0, (), (-5, 15.5))
    assert data.train.labels == pytest.approx((y + 5) / 20.5, abs=1e-6)
    assert data.test.labels == pytest.approx(np.full(10, 2.0), abs=1e-6)
    assert data.train.labels.dtype == np.float32


def test_arrays_in_memory_are_taken_as_files_are(tmp_path: Path) -> None:
    """Lists and objects, as a table of pandas gives text."""
    rows, names = np.arange(50.0)[:, None], np.array(["b", "a"] * 25, dtype=np.object_)
    ours = data_of(rows.tolist(), names, columns={"group": np.arange(50)}, seed=1)
    theirs = load_data(write_npz(tmp_path, features=rows, labels=names.astype(str), group=np.arange(50)), seed=1)
    assert np.array_equal(ours.train.features, theirs.train.features)
    assert np.array_equal(ours.train.labels, theirs.train.labels)
    assert np.array_equal(ours.columns["group"], theirs.columns["group"])
    assert ours.class_names == theirs.class_names == ("a", "b")
    with pytest.raises(InputFileError, match="labels are missing"):
        data_of(rows, np.array([None] * 50))


def test_features_keep_the_range_they_were_scaled_by(tmp_path: Path) -> None:
    """Whoever uses the model must scale likewise."""
    x, y = np.array([[-10.0, 0], [10, 1]]), np.array([0, 1])
    data = load_data(write_npz(tmp_path, x_train=x, y_train=y, x_test=x, y_test=y) + ":scale=range")
    assert data.scaler.feature_range is not None
    assert [edge.tolist() for edge in data.scaler.feature_range] == [[-10, 0], [10, 1]]


FIT = Partition(np.zeros((3, 4), dtype=np.float32), np.array([0, 1, 2]))


@pytest.mark.parametrize(
    ("data", "classes", "says"),
    [
        (FIT, 3, None),
        (Partition(FIT.features[:0], FIT.labels[:0]), 3, None),
        (Partition(FIT.features, np.array([0.5, -9, 2])), 0, None),
        (FIT, 0, None),
        (FIT, 2, "label 2 in row 2: need 0 to 1"),
        (Partition(FIT.features, np.array([0, -1, 2])), 3, "label -1 in row 1"),
        (Partition(FIT.features, np.array([0.5, 1, 2])), 3, "need whole numbers, classes from 0"),
        (Partition(FIT.features, np.array([0.0, 1.0, 2.0])), 3, "need whole numbers, classes from 0"),
        (Partition(FIT.features, np.array(["a", "b", "c"])), 3, "one number as label each"),
        (Partition(FIT.features[:, :2], FIT.labels), 3, "rows have 2 features: need 4"),
        (Partition(FIT.features[:2], FIT.labels), 3, r"features have shape \(2, 4\), labels \(3,\)"),
        (Partition(np.full((3, 4), np.inf), FIT.labels), 3, "row 0 are not finite"),
        (Partition(FIT.features, np.array([0.5, np.nan, 2])), 0, "label of row 1 is missing"),
    ],
)
def test_rows_are_held_against_what_a_learner_was_made_for(data: Partition, classes: int, says: str | None) -> None:
    """Before the first update, in one line that names the file."""
    if says is None:
        require_fit(data, n_features=4, n_classes=classes, name="data mine.npz")
        return
    with pytest.raises(InputFileError, match=f"^data mine.npz: .*{says}"):
        require_fit(data, n_features=4, n_classes=classes, name="data mine.npz")


GOOD = {"features": np.zeros((10, 2)), "labels": np.arange(10) % 2}


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"features": GOOD["features"]}, "has no labels: need an array labels"),
        ({"x_train": GOOD["features"], "x_test": GOOD["features"], "y_train": GOOD["labels"]}, "need an array y_test"),
        ({"other": GOOD["features"]}, "need arrays x_train"),
        (GOOD | {"labels": np.zeros(9, int)}, "one row of features for each label"),
        (GOOD | {"features": np.zeros(10)}, "one row of features for each label"),
        (GOOD | {"features": np.full((10, 2), np.nan)}, "features of row 0 are not finite"),
        (GOOD | {"features": np.full((10, 2), np.inf)}, "not finite"),
        (GOOD | {"features": np.full((10, 2), "a")}, "need numbers"),
        (GOOD | {"labels": np.full(10, np.nan)}, "the label of row 0 is missing"),
        (GOOD | {"labels": np.array(["cat", ""] * 5)}, "the label of row 1 is missing"),
        (GOOD | {"labels": np.full(10, 1j)}, "labels are missing or of type complex128"),
        ({"features": np.zeros((50, 2)), "labels": np.arange(50)}, "50 different values in 50 rows: need fewer"),
        (
            {
                "x_train": GOOD["features"],
                "y_train": np.full(10, "cat"),
                "x_test": GOOD["features"],
                "y_test": np.full(10, 0.5),
            },
            "names in one part and real numbers in the other",
        ),
        ({"features": np.zeros((0, 2)), "labels": np.zeros(0, int)}, "has no rows"),
        (GOOD | {"labels": np.array([object()] * 10)}, "plain arrays"),
        (
            {"x_train": GOOD["features"], "y_train": GOOD["labels"], "x_test": np.zeros((9, 3)), "y_test": np.zeros(9)},
            "2 features in training, 3 in test",
        ),
    ],
)
def test_unfit_archives_are_refused(tmp_path: Path, arrays: dict[str, Array], says: str) -> None:
    """With the file and what is wrong, in one line."""
    with pytest.raises(InputFileError, match=says) as caught:
        load_data(write_npz(tmp_path, **arrays))
    assert "data.npz" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_archives_that_are_none_are_refused(tmp_path: Path) -> None:
    """Missing, not a zip, torn."""
    with pytest.raises(InputFileError, match="No such file"):
        load_data(f"npz:{tmp_path / 'none.npz'}")
    (tmp_path / "text.npz").write_text("hello")
    with pytest.raises(InputFileError, match="is not an npz archive"):
        load_data(f"npz:{tmp_path / 'text.npz'}")
    with zipfile.ZipFile(tmp_path / "odd.npz", "w") as archive:
        archive.writestr("features.npy", b"not an array")
        archive.writestr("labels.npy", b"nor this")
    with pytest.raises(InputFileError, match="is not an npz archive"):
        load_data(f"npz:{tmp_path / 'odd.npz'}")


def write_bomb(path: Path, shape: tuple[int, ...], content: int) -> None:
    """Write an archive whose array announces ``shape``, and holds so many bytes of zeros, packed."""
    header = io.BytesIO()
    about = {"descr": "<f8", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(header, about)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("features.npy", "w") as stream:
        stream.write(header.getvalue())
        for _ in range(content >> 20):
            stream.write(bytes(1 << 20))


def test_an_archive_that_would_fill_memory_is_refused(tmp_path: Path) -> None:
    """By the size that it announces, or its arrays do, before memory is taken; no advice to load code."""
    write_bomb(tmp_path / "bomb.npz", (8 << 20,), 64 << 20)
    assert (tmp_path / "bomb.npz").stat().st_size < 1 << 20
    tracemalloc.start()
    with pytest.raises(InputFileError, match="unpacks to"):
        read_archive(tmp_path / "bomb.npz", limit=1 << 20)
    # The header promises a petabyte.
    write_bomb(tmp_path / "liar.npz", (1 << 47,), 1 << 20)
    with pytest.raises(InputFileError, match="size that its header announces") as caught:
        load_data(f"npz:{tmp_path / 'liar.npz'}")
    assert tracemalloc.get_traced_memory()[1] < 8 << 20
    tracemalloc.stop()
    assert "pickle" not in str(caught.value)
    np.savez(tmp_path / "code.npz", features=np.array([{"any": "object"}], dtype=object))
    with pytest.raises(InputFileError) as caught:
        load_data(f"npz:{tmp_path / 'code.npz'}")
    assert "pickle" not in str(caught.value)


def test_a_packed_idx_file_takes_memory_as_bytes_come(tmp_path: Path) -> None:
    """A short file that announces a gigabyte is refused without taking it."""
    header = (0x803).to_bytes(4, "big") + b"".join(size.to_bytes(4, "big") for size in (1 << 20, 32, 32))
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(header + bytes(1000)))
    tracemalloc.start()
    with pytest.raises(InputFileError, match="cut short"):
        load_data(f"mnist:{tmp_path}")
    assert tracemalloc.get_traced_memory()[1] < 16 << 20
    tracemalloc.stop()


@pytest.mark.parametrize(
    "spec", ["digits:only=3,8", "digits:pool=4", "digits:scale=columns", "digits:scale=rows", "digits:scale="]
)
def test_options_that_cannot_be_are_refused(spec: str) -> None:
    """By the parameter."""
    with pytest.raises(InvalidParameterError) as refused:
        load_data(spec)
    assert refused.value.name == "data"


@pytest.mark.parametrize("spec", ["", "digits:8", "mnist", "npz:", "csv:", "parquet", "cifar10"])
def test_unknown_specs_are_refused_with_what_there_is(spec: str) -> None:
    """One line."""
    with pytest.raises(InvalidParameterError, match="must be digits, mnist:DIR, npz:FILE"):
        load_data(spec)


def test_tokens_stay_what_they_are(tmp_path: Path) -> None:
    """Not scaled, whatever their range; labels may be left out; anything but whole numbers from 0 is refused."""
    tokens = np.arange(60, dtype=np.uint8).reshape(20, 3) * 4
    np.savez(tmp_path / "t.npz", tokens=tokens, writer=np.arange(20) % 2)
    data = load_data(f"npz:{tmp_path / 't.npz'}")
    rows = np.concatenate((data.train.features, data.test.features))
    assert sorted(map(tuple, rows.tolist())) == [tuple(map(float, row)) for row in tokens.tolist()]
    assert (data.n_classes, len(data.test), set(data.columns)) == (1, 4, {"writer"})
    for bad in (tokens.astype(np.float64), tokens[0], tokens.astype(np.int64) - 1, np.full((9, 2), 1 << 24)):
        np.savez(tmp_path / "bad.npz", tokens=bad)
        with pytest.raises(InputFileError, match="need rows of whole numbers from 0"):
            load_data(f"npz:{tmp_path / 'bad.npz'}")
