"""The commands of the lab tests on a node: `python node.py serve PORT`, `call IP PORT`, `flood IP PORT BYTES`.

serve echoes lines and swallows floods; call sends a line a tenth of a second, printing the result of each for as long as it runs;
flood sends bytes and prints the seconds until the receiver has confirmed them all.
"""
import socket
import sys
import threading
import time


def serve(port: int) -> None:
    listener = socket.create_server(("0.0.0.0", port))
    print("ready", flush=True)
    while True:
        threading.Thread(target=answer, args=listener.accept()[:1], daemon=True).start()


def answer(peer: socket.socket) -> None:
    got = 0
    first = peer.recv(1 << 16)
    if first.startswith(b"F"):
        size, got = int(first.split(b"\n")[0][1:]), len(first) - first.index(b"\n") - 1
        while got < size:
            got += len(peer.recv(1 << 16))
        peer.sendall(b"all")
        return
    while first:
        peer.sendall(first)
        first = peer.recv(1 << 16)


def call(ip: str, port: int) -> None:
    with socket.create_connection((ip, port), timeout=5) as peer:
        peer.settimeout(0.1)
        while True:
            try:
                peer.sendall(b"x\n")
                print("echo" if peer.recv(4096) else "closed", flush=True)
                time.sleep(0.1)
            except TimeoutError:
                print("silence", flush=True)
            except OSError as e:
                print("error", e, flush=True)
                return


def flood(ip: str, port: int, size: int) -> None:
    with socket.create_connection((ip, port), timeout=30) as peer:
        start = time.monotonic()
        peer.sendall(b"F%d\n" % size)
        peer.sendall(bytes(size))
        assert peer.recv(3)
        print(time.monotonic() - start, flush=True)


def main() -> None:
    command, *words = sys.argv[1:]
    if command == "serve":
        serve(int(words[0]))
    elif command == "call":
        call(words[0], int(words[1]))
    else:
        flood(words[0], int(words[1]), int(words[2]))


main()
