#!/usr/bin/env python3
"""serve PORT COMMAND..: runs the command for each connection, its input and output the connection."""
import socket
import socketserver
import subprocess
import sys


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True
    request_queue_size = 64


class Command(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # as sshd does
        subprocess.run(sys.argv[2:], stdin=self.request, stdout=self.request)


if __name__ == "__main__":
    with Server(("", int(sys.argv[1])), Command) as server:
        print("listening", flush=True)
        server.serve_forever()
