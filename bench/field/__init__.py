"""Throughput of `tidecast field` on this machine, beside the paper's figures and iperf3 -u."""
