"""A relay that drops datagrams of a field."""
import random
import selectors
import socket
import threading

from support.fieldsink import neighbours


class Link:
    """Between a sender and a receiver: passes datagrams on, but for some of those that are not control messages, and for all that are longer
    than `limit` after the first `late` long ones."""

    def __init__(self, to: int, streams: int, loss: float = 0.0, limit: int = 70_000, late: int = 0):
        self.sockets, self.port = neighbours(streams)
        self.ways = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in self.sockets]
        for n, way in enumerate(self.ways):
            way.connect(("127.0.0.1", to + n))
        self.loss, self.dropped, self.stop = loss, 0, False
        self.limit, self.late, self.longest = limit, late, 0
        self.thread = threading.Thread(target=self.run)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stop = True
        self.thread.join()
        for s in self.sockets + self.ways:
            s.close()

    def run(self):
        dice, senders, selector = random.Random(1), {}, selectors.DefaultSelector()
        for n, (here, there) in enumerate(zip(self.sockets, self.ways)):
            selector.register(here, selectors.EVENT_READ, (n, True))
            selector.register(there, selectors.EVENT_READ, (n, False))
        while not self.stop:
            for event, _ in selector.select(0.05):
                n, on = event.data
                datagram, sender = event.fileobj.recvfrom(70_000)
                if not on:
                    self.sockets[n].sendto(datagram, senders[n])
                    continue
                senders[n] = sender
                self.late -= len(datagram) > self.limit
                swallowed = len(datagram) > self.limit and self.late < 0
                if swallowed or datagram[:4] != b"\xff" * 4 and dice.random() < self.loss:
                    self.dropped += 1
                else:
                    self.longest = max(self.longest, len(datagram))
                    self.ways[n].send(datagram)
