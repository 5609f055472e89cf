"""What `tidecast field` carries on this machine, against the paper's figures and iperf3 -u."""
