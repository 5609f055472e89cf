"""A libtorrent peer as a program of its own, so that it can run on a lab node and be measured separately.

ltpeer.py make TORRENT PATH [--format v1|v2|hybrid] [--piece N] [--ca PEM]
ltpeer.py seed|get TORRENT-or-MAGNET DIR --listen IP:PORT [--peer IP:PORT].. [--tracker URL].. [--rate BYTES]
          [--ssl CERT KEY DH] [--encrypt rc4|any] [--tuned] [--stay]
Prints `ready`, then `done SECONDS BYTES` when all is here; `get` ends then, unless --stay.
Tuned: the settings of the fastest transfers known for libtorrent on one machine.
"""
import argparse
import os
import sys
import time
import warnings

import libtorrent as lt

warnings.simplefilter("ignore", DeprecationWarning)  # its 1.x calls, which all its versions have

QUIET = {
    "enable_dht": False, "enable_lsd": False, "enable_upnp": False, "enable_natpmp": False, "alert_mask": 0,
    "allow_multiple_connections_per_ip": True, "announce_to_all_trackers": True, "min_reconnect_time": 1,
    "enable_incoming_utp": False, "enable_outgoing_utp": False, "validate_https_trackers": False}
# It demands MSE of every connection, with enciphered payload or with either.
ENCRYPTED = {"in_enc_policy": 0, "out_enc_policy": 0}
LEVELS = {"rc4": 2, "any": 3}
TUNED = {
    **lt.high_performance_seed(), "unchoke_slots_limit": -1, "max_out_request_queue": 3000,
    "max_allowed_in_request_queue": 4000, "send_buffer_watermark": 16 << 20, "max_queued_disk_bytes": 256 << 20,
    "request_queue_time": 1, "mixed_mode_algorithm": 0, "connection_speed": 500, "in_enc_policy": 2, "out_enc_policy": 2,
    "close_redundant_connections": False, "suggest_mode": 0, "aio_threads": 2, "hashing_threads": 2}


def make(a: argparse.Namespace) -> None:
    storage = lt.file_storage()
    lt.add_files(storage, a.dir)
    flag = {"v1": lt.create_torrent.v1_only, "v2": lt.create_torrent.v2_only, "hybrid": 0}[a.format]
    torrent = lt.create_torrent(storage, a.piece, flag)
    for url in a.tracker:
        torrent.add_tracker(url)
    for url in a.web_seed:
        torrent.add_url_seed(url)
    if a.ca:
        torrent.set_root_cert(open(a.ca).read())
    lt.set_piece_hashes(torrent, os.path.dirname(os.path.abspath(a.dir)))
    with open(a.torrent, "wb") as f:
        f.write(lt.bencode(torrent.generate()))


def params(a: argparse.Namespace) -> lt.add_torrent_params:
    if a.torrent.startswith("magnet:"):
        p = lt.parse_magnet_uri(a.torrent)
    else:
        p = lt.add_torrent_params()
        p.ti = lt.torrent_info(a.torrent)
    p.save_path = a.dir
    p.trackers = list(p.trackers) + a.tracker
    f = lt.torrent_flags
    p.flags = p.flags & ~f.auto_managed & ~f.paused
    if a.command == "seed" and a.tuned:
        p.flags |= f.seed_mode  # as the seeder of a benchmark: it made the data a moment ago
    return p


def run(a: argparse.Namespace) -> None:
    settings = {**QUIET, **(TUNED if a.tuned else {}), "listen_interfaces": a.listen + ("s" if a.ssl else "")}
    if a.encrypt:
        settings |= {**ENCRYPTED, "allowed_enc_level": LEVELS[a.encrypt]}
    if a.rate:
        settings |= {"upload_rate_limit": a.rate, "rate_limit_ip_overhead": False}
    session = lt.session(settings)
    if a.rate:  # the limit is of the global class, to which peers on this machine do not belong by default
        everyone = lt.ip_filter()
        everyone.add_rule("0.0.0.0", "255.255.255.255", 1 << lt.session.global_peer_class_id)
        session.set_peer_class_filter(everyone)
    handle = session.add_torrent(params(a))
    if a.ssl:
        handle.set_ssl_certificate(*a.ssl, "")
    while a.command == "seed" and not handle.status().is_seeding:
        if handle.status().errc.value():
            sys.exit(f"seed: {handle.status().errc.message()}")
        time.sleep(0.02)
    print("ready", flush=True)
    start = time.monotonic()
    for peer in a.peer:
        ip, _, port = peer.rpartition(":")
        handle.connect_peer((ip.strip("[]"), int(port)))
    while not handle.status(0).is_seeding:  # without flags it costs its network thread little
        time.sleep(0.01)
    print("done", time.monotonic() - start, handle.status().total_payload_download, flush=True)
    flush(session, handle)
    print("flushed", flush=True)
    while a.command == "seed" or a.stay:
        time.sleep(1)
    os._exit(0)  # its destructors may wait for trackers and peers


def flush(session: lt.session, handle: lt.torrent_handle) -> None:
    """Wait until its data is in the files: a piece counts as had while its write is still queued."""
    session.apply_settings({"alert_mask": lt.alert.category_t.storage_notification})
    handle.flush_cache()
    for _ in range(600):
        session.wait_for_alert(100)
        if any(isinstance(x, lt.cache_flushed_alert) for x in session.pop_alerts()):
            return
    sys.exit("its files were not flushed in a minute")


def main() -> None:
    p = argparse.ArgumentParser()
    p.add_argument("command", choices=("make", "seed", "get"))
    p.add_argument("torrent")
    p.add_argument("dir")
    p.add_argument("--format", default="hybrid")
    p.add_argument("--piece", type=int, default=0)
    p.add_argument("--ca")
    p.add_argument("--listen", default="127.0.0.1:0")
    p.add_argument("--peer", action="append", default=[])
    p.add_argument("--tracker", action="append", default=[])
    p.add_argument("--web-seed", action="append", default=[])
    p.add_argument("--rate", type=int, default=0)
    p.add_argument("--ssl", nargs=3)
    p.add_argument("--encrypt", choices=sorted(LEVELS))
    p.add_argument("--tuned", action="store_true")
    p.add_argument("--stay", action="store_true")
    a = p.parse_args()
    make(a) if a.command == "make" else run(a)


main()
