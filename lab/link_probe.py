#!/usr/bin/env python3
"""What one end of a link sees of it, as iperf3 and ping would; lab/netns.py --check starts it.

    link_probe.py serve ADDRESS
    link_probe.py stream ADDRESS SECONDS START
    link_probe.py flood ADDRESS BITS_PER_SECOND SECONDS START
    link_probe.py echo ADDRESS COUNT GAP

`serve` takes streams and floods and sends echoes back, until it is ended. `stream` sends by TCP
from the time START on, and prints {"bits_per_second"} as the server has counted them, without
headers. `flood` sends datagrams that fill frames, at so many bits a second of these, and prints
{"bits_per_second"} of the frames that came, from the {"first"} of them to the {"last"}, which
are told as times. `echo` sends COUNT datagrams, one each GAP seconds, and prints
{"round_trips"} in seconds, of those that came back, and {"lost"}, the part of the others.
"""

import json
import selectors
import socket
import struct
import sys
import threading
import time

PORT = 29401
FLOODED = 29402  # port for datagrams, and to ask what came of them
FRAME, DATAGRAM = 1514, 1472  # bytes of a frame that is full, and what a datagram has of them
BUFFER = 8 << 20  # bytes, so that a receiver that must wait for a processor loses nothing
SO_RCVBUFFORCE = 33  # which Python has no name for
FLOOD = "<Qdd"  # what came of one
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


def flood_ends(address: str) -> tuple[socket.socket, socket.socket]:
    """Where a flood comes, and where its sender asks what has come."""
    datagrams = socket.socket(type=socket.SOCK_DGRAM)
    datagrams.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER)
    datagrams.bind((address, FLOODED))
    return datagrams, socket.create_server((address, FLOODED))


def count_flood(datagrams: socket.socket, asking: socket.socket) -> None:
    """Tells who asks what has come since the last one did: frames, and when the first and the
    last of them came."""
    ready = selectors.DefaultSelector()
    for end in (datagrams, asking):
        ready.register(end, selectors.EVENT_READ)
    frames, first, last = 0, 0.0, 0.0
    while True:
        for key, _ in ready.select():
            if key.fileobj is asking:
                taken, _ = asking.accept()
                taken.sendall(struct.pack(FLOOD, frames, first, last))
                taken.close()
                frames, first, last = 0, 0.0, 0.0
            else:
                datagrams.recv(2048)
                last = time.time()
                first, frames = first or last, frames + 1


def serve(address: str) -> None:
    streams = socket.create_server((address, PORT))
    echoes = socket.socket(type=socket.SOCK_DGRAM)
    echoes.bind((address, PORT))
    threading.Thread(target=count_flood, args=flood_ends(address), daemon=True).start()
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
        (bits_per_second,) = told(connection, "<d")
    return {"bits_per_second": bits_per_second}


def told(connection: socket.socket, form: str) -> tuple:
    """What the other end says before it closes the connection."""
    said = b""
    while part := connection.recv(struct.calcsize(form) - len(said)):
        said += part
    return struct.unpack(form, said)


def flood(address: str, bits_per_second: float, seconds: float, start: float) -> dict:
    data, sent = bytes(DATAGRAM), 0
    with socket.socket(type=socket.SOCK_DGRAM) as end:
        end.connect((address, FLOODED))
        time.sleep(max(0, start - time.time()))
        while (passed := time.time() - start) < seconds:
            while sent < passed * bits_per_second / 8 / FRAME:
                end.send(data)
                sent += 1
            time.sleep(0.001)
    time.sleep(GRACE)
    with socket.create_connection((address, FLOODED)) as connection:
        frames, first, last = told(connection, FLOOD)
    # What came with the first frame was sent before it.
    carried = 8 * FRAME * max(0, frames - 1) / max(last - first, 1e-9)
    return {"bits_per_second": carried, "first": first, "last": last}


def echo(address: str, count: int, gap: float) -> dict:
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
            time.sleep(gap)
        hearing.join()
    return {"round_trips": sorted(taken.values()), "lost": 1 - len(taken) / count}


def main() -> None:
    what, address, *rest = sys.argv[1:]
    if what == "serve":
        serve(address)
    numbers = [float(word) for word in rest]
    if what == "echo":
        found = echo(address, int(numbers[0]), numbers[1])
    else:
        found = {"stream": stream, "flood": flood}[what](address, *numbers)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
