#!/usr/bin/env python3
"""What one end of a link sees of it, as iperf3 and ping would; lab/netns.py --check starts it.

    link_probe.py serve ADDRESS
    link_probe.py stream ADDRESS SECONDS START
    link_probe.py echo ADDRESS COUNT

`serve` takes streams and sends echoes back, until it is ended. `stream` sends by TCP from the
time START on, and prints {"bits_per_second"} as the server has counted them, without headers.
`echo` sends COUNT datagrams and prints {"round_trips"} in seconds, of those that came
back, and {"lost"}, the part of the others.
"""

import json
import selectors
import socket
import struct
import sys
import threading
import time

PORT = 29401
ECHO_SECONDS = 0.01  # from one datagram to the next
GRACE = 1.0  # seconds for the last ones to come back


def count_stream(connection: socket.socket) -> None:
    """Tells the sender how fast its bytes came, from the first to the last."""
    first, last, received = 0.0, 0.0, 0
    while data := connection.recv(1 << 16):
        last = time.monotonic()
        # What came with the first bytes was sent before them.
        first, received = first or last, received + len(data) if first else 0
    seconds = max(last - first, 1e-9)
    connection.sendall(struct.pack("<d", 8 * received / seconds))
    connection.close()


def serve(address: str) -> None:
    streams = socket.create_server((address, PORT))
    echoes = socket.socket(type=socket.SOCK_DGRAM)
    echoes.bind((address, PORT))
    print("ready", flush=True)
    ready = selectors.DefaultSelector()
    for end in (streams, echoes):
        ready.register(end, selectors.EVENT_READ)
    while True:
        for key, _ in ready.select():
            if key.fileobj is echoes:
                echoes.sendto(*echoes.recvfrom(2048))
            else:
                taken, _ = streams.accept()
                threading.Thread(target=count_stream, args=(taken,), daemon=True).start()


def stream(address: str, seconds: float, start: float) -> dict:
    with socket.create_connection((address, PORT)) as connection:
        time.sleep(max(0, start - time.time()))
        end = time.time() + seconds
        data = bytes(1 << 16)
        while time.time() < end:
            connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        told = b""
        while part := connection.recv(8 - len(told)):
            told += part
    return {"bits_per_second": struct.unpack("<d", told)[0]}


def echo(address: str, count: int) -> dict:
    taken: dict[int, float] = {}
    sent: dict[int, float] = {}
    with socket.socket(type=socket.SOCK_DGRAM) as end:
        end.connect((address, PORT))

        def hear() -> None:
            while len(taken) < count:
                try:
                    (index,) = struct.unpack("<I", end.recv(64))
                except OSError:  # closed, or nothing came for long
                    return
                taken[index] = time.monotonic() - sent[index]

        end.settimeout(GRACE)
        hearing = threading.Thread(target=hear)
        hearing.start()
        for index in range(count):
            sent[index] = time.monotonic()
            end.send(struct.pack("<I", index))
            time.sleep(ECHO_SECONDS)
        hearing.join()
    return {"round_trips": sorted(taken.values()), "lost": 1 - len(taken) / count}


def main() -> None:
    what, address, *rest = sys.argv[1:]
    if what == "serve":
        serve(address)
    numbers = [float(word) for word in rest]
    found = stream(address, *numbers) if what == "stream" else echo(address, int(numbers[0]))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
