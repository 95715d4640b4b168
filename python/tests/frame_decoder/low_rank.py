"""Section 12: low-rank."""

import struct

import numpy as np

from frame_decoder.frame import MASK32, check


def take(data, at, count, dtype):
    """`count` numbers as f32, and where they end."""
    end = at + count * np.dtype(dtype).itemsize
    check(end <= len(data), "the numbers are cut short")
    numbers = np.frombuffer(data[at:end], dtype)
    if dtype == "<u2":
        numbers = (numbers.astype(np.uint32) << np.uint32(16)).view(np.float32)
    check(np.isfinite(numbers).all(), "a number is NaN or infinite")
    return numbers, end


def product_of_factors(p, q, rows, cols, rank, size):
    """The first `size` values of the matrix."""
    values = np.zeros(size, np.float32)
    for k in range(rank):
        product = np.outer(p[k * rows : (k + 1) * rows], q[k * cols : (k + 1) * cols])
        product = product.reshape(-1)[:size]
        values = values + product if k else product
    check(np.isfinite(values).all(), "a value is infinite")
    return values


def decode_low_rank(frame):
    check(frame.flags == 0 and len(frame.parameters) == 8, "parameter length and flags")
    form, reserved, tensors = struct.unpack("<B3sI", frame.parameters)
    check(form <= 1 and reserved == bytes(3), "format or reserved bytes")
    data, at = frame.payload, 12 * tensors
    check(at <= len(data), "the records are cut short")
    values = np.zeros(frame.n, np.float32)
    begin = 0
    for t in range(tensors):
        rows, cols, rank = struct.unpack_from("<3I", data, 12 * t)
        listed = rank == MASK32
        check(rows > 0 and cols > 0 and (listed or rank <= min(rows, cols)), "a record")
        size = min(rows * cols, frame.n - begin)
        missing = rows * cols - size
        check(missing == 0 or (t == tensors - 1 and not listed and missing < cols), "shapes")
        if listed:
            part, at = take(data, at, size, "<f4")
        else:
            dtype = "<u2" if form else "<f4"
            p, at = take(data, at, rank * rows, dtype)
            q, at = take(data, at, rank * cols, dtype)
            part = product_of_factors(p, q, rows, cols, rank, size)
        values[begin : begin + size] = part
        begin += size
    check(begin == frame.n and at == len(data), "values or bytes are left over")
    return values
