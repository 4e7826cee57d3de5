"""JPEG files of random coefficients: any sampling, any Huffman table, any run of zeros.

No picture stands behind them; decoders must agree on them all the same. ITU-T T.81: annex B for
the markers, F.1.2 for the codes.
"""

import struct

import numpy as np

DC_SYMBOLS = list(range(12))
AC_SYMBOLS = [0x00, 0xF0] + [run << 4 | size for size in range(1, 11) for run in range(16)]

# Number of codes of length 1 to 16.
FLAT = {12: [0, 0, 0, 12] + [0] * 12, 162: [0] * 7 + [162] + [0] * 8}
LONG = {12: [0] + [1] * 12 + [0] * 3, 162: [0] + [1] * 14 + [148]}


def _segment(marker, body):
    return struct.pack(">BBH", 0xFF, marker, len(body) + 2) + body


def _codes(lengths, symbols):
    """{symbol: bits as text}, annex C."""
    codes, code, place = {}, 0, 0
    for length, count in enumerate(lengths, 1):
        for symbol in symbols[place : place + count]:
            codes[symbol] = f"{code:0{length}b}"
            code += 1
        place += count
        code <<= 1
    return codes


def _extra(value):
    """(number of extra bits, the bits), tables F.1 and F.2."""
    size = abs(value).bit_length()
    return size, f"{value if value > 0 else value + (1 << size) - 1:0{size}b}" if size else ""


def _block(rng, difference, density, codes):
    size, bits = _extra(difference)
    text, run = codes[0][size] + bits, 0
    magnitudes = rng.integers(0, 11, 63)
    for there, magnitude in zip(rng.random(63) < density, magnitudes, strict=True):
        value = int(rng.integers(-(1 << magnitude) + 1, 1 << magnitude)) if there else 0
        if value == 0:
            run += 1
            continue
        text += codes[1][0xF0] * (run // 16)
        size, bits = _extra(value)
        text += codes[1][run % 16 << 4 | size] + bits
        run = 0
    return text + (codes[1][0x00] if run else "")


def coded_scan(rng, height, width, *, sampling, density=0.3, lengths=FLAT, restart=0):
    """A baseline file; sampling: (horizontal, vertical) of each component."""
    single = len(sampling) == 1
    across = 1 if single else max(h for h, _ in sampling)
    down = 1 if single else max(v for _, v in sampling)
    symbols = [list(rng.permutation(s)) for s in (DC_SYMBOLS, AC_SYMBOLS)]
    codes = [_codes(lengths[len(s)], s) for s in symbols]
    last, text, scan = [0] * len(sampling), "", b""
    mcus = -(-height // (8 * down)) * -(-width // (8 * across))
    for mcu in range(mcus):
        if restart and mcu and mcu % restart == 0:
            scan += _stuffed(text) + bytes([0xFF, 0xD0 + (mcu // restart - 1) % 8])
            last, text = [0] * len(sampling), ""
        for c, (h, v) in enumerate(sampling):
            for _ in range(1 if single else h * v):
                dc = int(rng.integers(-1000, 1001))
                text += _block(rng, dc - last[c], density, codes)
                last[c] = dc
    frame = struct.pack(">BHHB", 8, height, width, len(sampling))
    frame += b"".join(bytes([c + 1, h << 4 | v, 0]) for c, (h, v) in enumerate(sampling))
    head = bytes([len(sampling)])
    head += b"".join(bytes([c + 1, 0]) for c in range(len(sampling))) + bytes([0, 63, 0])
    tables = b"".join(
        bytes([kind << 4]) + bytes(lengths[len(s)]) + bytes(s)
        for kind, s in enumerate(np.array(s).tolist() for s in symbols)
    )
    return b"".join([
        b"\xff\xd8",
        _segment(0xDB, bytes([0]) + bytes([1] * 64)),
        _segment(0xC0, frame),
        _segment(0xC4, tables),
        _segment(0xDD, struct.pack(">H", restart)) if restart else b"",
        _segment(0xDA, head),
        scan + _stuffed(text),
        b"\xff\xd9",
    ])  # fmt: skip


def _stuffed(text):
    text += "1" * (-len(text) % 8)
    return int("1" + text, 2).to_bytes(len(text) // 8 + 1, "big")[1:].replace(b"\xff", b"\xff\0")
