"""Certificates for SSL torrents, made with openssl: a root, and peers that it signed."""
from __future__ import annotations

import pathlib
import subprocess


def openssl(*words) -> None:
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)


def root(folder: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path]:
    """A root's certificate and key."""
    folder.mkdir(parents=True, exist_ok=True)
    cert, key = folder / "root.crt", folder / "root.key"
    openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", cert, "-days", "30", "-subj", "/CN=a root")
    return cert, key


def peer(folder: pathlib.Path, ca: pathlib.Path, ca_key: pathlib.Path, name: str) -> tuple[pathlib.Path, pathlib.Path, pathlib.Path]:
    """A peer's certificate for the torrent `name`, its key, and the Diffie-Hellman file that libtorrent wants."""
    folder.mkdir(parents=True, exist_ok=True)
    cert, key, request, extra, dh = (folder / f for f in ("peer.crt", "peer.key", "peer.csr", "peer.ext", "dh.pem"))
    extra.write_text(f"subjectAltName=DNS:{name}\n")
    openssl("req", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", request, "-subj", f"/CN={name}")
    openssl("x509", "-req", "-in", request, "-CA", ca, "-CAkey", ca_key, "-CAcreateserial", "-CAserial", folder / "serial",
            "-days", "30", "-extfile", extra, "-out", cert)
    openssl("dhparam", "-dsaparam", "-out", dh, "2048")
    return cert, key, dh


def web(folder: pathlib.Path, ip: str) -> tuple[pathlib.Path, tuple[pathlib.Path, pathlib.Path]]:
    """A root, and the certificate and key of a web server at an address."""
    ca, ca_key = root(folder)
    cert, key, request = (folder / f"web.{kind}" for kind in ("crt", "key", "csr"))
    (folder / "web.ext").write_text(f"subjectAltName=IP:{ip}\nextendedKeyUsage=serverAuth\nbasicConstraints=CA:FALSE\n")
    openssl("req", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", request, "-subj", "/CN=web")
    openssl("x509", "-req", "-in", request, "-CA", ca, "-CAkey", ca_key, "-CAcreateserial", "-CAserial", folder / "serial",
            "-days", "30", "-extfile", folder / "web.ext", "-out", cert)
    return ca, (cert, key)
