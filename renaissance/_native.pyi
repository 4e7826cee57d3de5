import numpy as np
import numpy.typing as npt

SHUFFLE_LIMIT: int

def texts() -> dict[str, str]: ...
def philox(c0: int, c1: int, c2: int, c3: int, k0: int, k1: int) -> tuple[int, int, int, int]: ...
def keyed_words(
    key: int, stream: int, when: int, ids: npt.NDArray[np.uint64]
) -> npt.NDArray[np.uint32]: ...
def derive(key: int, word: int) -> int: ...
def derive_text(key: int, text: str) -> int: ...
def purpose_key(seed: int, purpose: int) -> int: ...
def below_unbiased(key: int, index: int, n: int) -> int: ...
def fill_uniform(out: int, count: int, seed: int, offset: int, threads: int) -> None: ...
def fill_normal(out: int, count: int, seed: int, offset: int, threads: int) -> None: ...
def fill_trunc_normal(out: int, count: int, seed: int, offset: int, threads: int) -> None: ...
def fill_permutation(out: int, n: int, key: int) -> None: ...
def fill_feistel(out: int, n: int, key: int, start: int, step: int, count: int) -> None: ...
def feistel_position(n: int, key: int, id: int) -> int: ...

OPERATION_KINDS: dict[str, int]
OPERATION_BYTES: int

class PictureError(ValueError): ...

class Scratch:
    def __init__(self) -> None: ...
    @property
    def capacity(self) -> int: ...

class Program:
    def __init__(self, text: bytes) -> None: ...
    @property
    def channels(self) -> int: ...
    @property
    def height(self) -> int: ...
    @property
    def width(self) -> int: ...
    def run(
        self,
        pictures: int,
        shape: list[int],
        strides: list[int],
        ids: int,
        count: int,
        key: int,
        epoch: int,
        out: int,
        dtype: int,
        layout: int,
        channels: int,
        scratch: Scratch | None,
    ) -> None: ...
    def crop_of(
        self, height: int, width: int, key: int, epoch: int, id: int
    ) -> tuple[int, int, int, int]: ...

def use_simd(wanted: bool) -> bool: ...

class Source: ...

class PictureSource(Source):
    def __init__(
        self,
        address: int,
        height: int,
        width: int,
        channels: int,
        strides: tuple[int, int, int, int],
    ) -> None: ...

class RowSource(Source):
    def __init__(self, address: int, row_bytes: int) -> None: ...

class FileSource(Source):
    def __init__(
        self, paths: bytes, offsets: list[int], channels: int, decode_jpeg: bool
    ) -> None: ...

class ForeignSource(Source):
    def __init__(self) -> None: ...

class Workbench:
    def __init__(self) -> None: ...

def has_jpeg() -> bool: ...
def use_huffman(wanted: bool) -> bool: ...
def huffman_counts() -> tuple[int, int, int]: ...
def decode_jpeg(data: bytes, channels: int) -> npt.NDArray[np.uint8]: ...
def survey(
    source: FileSource, begin: int, end: int, out: int, height: int, width: int, threads: int
) -> list[tuple[int, int, str]]: ...

_Batches = tuple[int, int, int, int, int]

def batch_part(batches: _Batches, step: int) -> tuple[int, int]: ...

class EpochOrder:
    def __init__(self, samples: int, shuffles: bool, key: int) -> None: ...
    @property
    def is_prepared(self) -> bool: ...
    def ids(self, first: int, count: int) -> npt.NDArray[np.int64]: ...

class Slots:
    def __init__(self, count: int) -> None: ...
    def __len__(self) -> int: ...
    @property
    def has_free(self) -> bool: ...
    @property
    def filling(self) -> int: ...
    @property
    def held(self) -> tuple[int, ...]: ...
    @property
    def next(self) -> int: ...
    def fill(self) -> int: ...
    def hand_out(self) -> int: ...
    def release(self, slot: int) -> None: ...

_Errand = tuple[int, int, int, int, int]

class Feed:
    class Status:
        READY: Feed.Status
        PENDING: Feed.Status
        FOREIGN: Feed.Status

    def __init__(
        self,
        *,
        source: Source,
        program: Program | None,
        ring: Slots,
        slots: list[tuple[int, int]],
        workers: int,
        on_error: str,
        batches: _Batches,
        batch: int,
        sample_bytes: int,
        label_bytes: int,
        labels: int,
        augment_key: int,
        replace_key: int,
        output: tuple[int, int, int],
        mix: tuple[float, float, float, int, int] | None = None,
    ) -> None: ...
    def begin(
        self, order: EpochOrder, following: EpochOrder, epoch: int, step: int, end: int
    ) -> None: ...
    def take(
        self, step: int, most_held: int, seconds: float, bench: Workbench
    ) -> tuple[int, npt.NDArray[np.int64], bool] | Feed.Status: ...
    def unclaimed(self, step: int) -> int: ...
    def release(self, slot: int) -> None: ...
    def expect_helpers(self) -> None: ...
    def damages(self, slot: int) -> list[tuple[int, int, str]]: ...
    def error(self, slot: int) -> tuple[int, str] | None: ...
    def take_errand(self, seconds: float) -> _Errand | None: ...
    def finish_picture(
        self,
        errand: _Errand,
        address: int,
        height: int,
        width: int,
        channels: int,
        label: int,
        bench: Workbench,
    ) -> None: ...
    def finish_row(self, errand: _Errand, row: int, label: int) -> None: ...
    def finish_jpeg(
        self, errand: _Errand, data: bytes, channels: int, label: int, bench: Workbench
    ) -> None: ...
    def fail(self, errand: _Errand, text: str, bench: Workbench) -> None: ...
    def cancel(self) -> None: ...
    def close(self) -> None: ...
    @property
    def is_closed(self) -> bool: ...
    def stats(self) -> dict[str, float]: ...

SCALARS_BYTES: int
MAX_ROWS: int
CHUNK: int
MAX_DIMS: int

def scalars_layout() -> dict[str, tuple[int, str, int]]: ...
def derive_scalars(scalars: int) -> None: ...
def step_scalars(scalars: int, partials: int, count: int) -> None: ...
def count_micro_step(scalars: int, is_first: bool, weight: int) -> None: ...
def update_range(
    kernel: str,
    w: int,
    g: int,
    m: int,
    v: int,
    a: int,
    a_type: int,
    begin: int,
    count: int,
    scalars: int,
    row: int,
    threads: int,
) -> None: ...
def update_lars(
    kernel: str,
    w: int,
    g: int,
    m: int,
    a: int,
    a_type: int,
    n: int,
    rows: int,
    chunks: int,
    begin: int,
    count: int,
    scalars: int,
    row: int,
    threads: int,
) -> None: ...
def trust_ratios(
    w: int,
    g: int,
    n: int,
    rows: int,
    chunks: int,
    begin: int,
    count: int,
    w_partials: int,
    g_partials: int,
    scalars: int,
    row: int,
    threads: int,
) -> None: ...
def check_range(
    g: int, rows: int, chunks: int, count: int, partials: int, threads: int
) -> None: ...
def fold_partials(partials: int, count: int) -> float: ...
def gather(
    rows: int, chunks: int, count: int, g: int, is_sum: bool, partials: int, threads: int
) -> None: ...
def average_ranges(rows: int, count: int, scalars: int, threads: int) -> None: ...
def exchange_ranges(rows: int, count: int, threads: int) -> None: ...
def round_range(w: int, a: int, a_type: int, count: int, threads: int) -> None: ...
def restore_buffers(target: int, source: int, num_bytes: int, scalars: int) -> None: ...
def advise_huge_pages(address: int, num_bytes: int) -> None: ...
def allow_avx2(allowed: bool) -> bool: ...
def dropout(
    x: int,
    y: int,
    rows: int,
    inner: int,
    channels: int,
    dtype: int,
    scalars: int,
    layer: int,
    threshold: int,
    scale: float,
    threads: int,
) -> None: ...
def noise(
    y: int,
    rows: int,
    inner: int,
    channels: int,
    dtype: int,
    scalars: int,
    layer: int,
    threads: int,
) -> None: ...
def draw_parameters(
    operation: bytes, key: int, epoch: int, first_id: int, count: int, height: int, width: int
) -> list[list[float]]: ...
def draw_mix(
    mixup: float,
    cutmix: float,
    p: float,
    key: int,
    epoch: int,
    first: int,
    second: int,
    height: int,
    width: int,
) -> tuple[float, int, int, int, int]: ...
def mix_pair(
    weight: float,
    top: int,
    left: int,
    box_height: int,
    box_width: int,
    dtype: int,
    layout: int,
    channels: int,
    height: int,
    width: int,
    first: int,
    second: int,
) -> None: ...
