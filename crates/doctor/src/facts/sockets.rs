//! Kernel parameters of sockets and TCP, and what the network stack counted.

use super::parse;
use crate::System;

/// Parameters below /proc/sys/net. `None`: the kernel or the namespace does not show it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sockets {
    /// Most bytes of a receive buffer that a program asks for.
    pub rmem_max: Option<u64>,
    /// Most bytes of a send buffer that a program asks for.
    pub wmem_max: Option<u64>,
    /// Bytes of a TCP receive buffer: least, default, most that the kernel's tuning reaches.
    pub tcp_rmem: Option<[u64; 3]>,
    /// The same of a TCP send buffer.
    pub tcp_wmem: Option<[u64; 3]>,
    /// Pages of all TCP buffers together: no pressure below, pressure from, most.
    pub tcp_mem: Option<[u64; 3]>,
    /// The congestion control of new connections.
    pub congestion: Option<String>,
    /// Those that a program may choose.
    pub available: Vec<String>,
    /// The queueing discipline of new interfaces.
    pub default_qdisc: Option<String>,
    /// Whether TCP finds out the MTU of a path: 0 no, 1 after a black hole, 2 always.
    pub mtu_probing: Option<u32>,
    /// Whether windows above 64 KiB may be agreed on.
    pub window_scaling: Option<bool>,
    /// Whether single lost segments are sent again alone.
    pub sack: Option<bool>,
    /// Whether segments carry times.
    pub timestamps: Option<bool>,
    /// Whether a new connection forgets how slow an earlier one was.
    pub no_metrics_save: Option<bool>,
    /// Whether the window of an idle connection starts small again.
    pub slow_start_after_idle: Option<bool>,
    /// Most bytes of notes beside a socket's data, which sending without copies needs.
    pub optmem_max: Option<u64>,
    /// Packets that wait for one CPU at most.
    pub netdev_max_backlog: Option<u64>,
    /// Flows whose CPU the kernel remembers (RFS); 0: off.
    pub rps_sock_flow_entries: Option<u64>,
    /// Datagrams dropped because the socket's buffer was full.
    pub udp_dropped: Option<u64>,
    /// Datagrams received.
    pub udp_received: Option<u64>,
    /// TCP segments sent.
    pub tcp_sent: Option<u64>,
    /// TCP segments sent again.
    pub tcp_again: Option<u64>,
    /// Connections refused because a listener's queue was full.
    pub listen_overflows: Option<u64>,
    /// Times that TCP found a path's MTU too large.
    pub mtu_probe_failures: Option<u64>,
}

impl Sockets {
    pub(super) fn read(system: &System) -> Self {
        let core = |name: &str| system.number(&format!("/proc/sys/net/core/{name}"));
        let text = |name: &str| system.text(&format!("/proc/sys/net/ipv4/{name}"));
        let triple = |name: &str| parse::triple(&text(name)?);
        let is = |name: &str| text(name)?.parse::<u32>().ok().map(|value| value != 0);
        let snmp = system.text("/proc/net/snmp").unwrap_or_default();
        let netstat = system.text("/proc/net/netstat").unwrap_or_default();
        let available = text("tcp_available_congestion_control").unwrap_or_default();
        Self {
            rmem_max: core("rmem_max"),
            wmem_max: core("wmem_max"),
            tcp_rmem: triple("tcp_rmem"),
            tcp_wmem: triple("tcp_wmem"),
            tcp_mem: triple("tcp_mem"),
            congestion: text("tcp_congestion_control"),
            available: available.split_whitespace().map(str::to_owned).collect(),
            default_qdisc: system.text("/proc/sys/net/core/default_qdisc"),
            mtu_probing: text("tcp_mtu_probing").and_then(|value| value.parse().ok()),
            window_scaling: is("tcp_window_scaling"),
            sack: is("tcp_sack"),
            timestamps: is("tcp_timestamps"),
            no_metrics_save: is("tcp_no_metrics_save"),
            slow_start_after_idle: is("tcp_slow_start_after_idle"),
            optmem_max: core("optmem_max"),
            netdev_max_backlog: core("netdev_max_backlog"),
            rps_sock_flow_entries: core("rps_sock_flow_entries"),
            udp_dropped: parse::counter(&snmp, "Udp", "RcvbufErrors"),
            udp_received: parse::counter(&snmp, "Udp", "InDatagrams"),
            tcp_sent: parse::counter(&snmp, "Tcp", "OutSegs"),
            tcp_again: parse::counter(&snmp, "Tcp", "RetransSegs"),
            listen_overflows: parse::counter(&netstat, "TcpExt", "ListenOverflows"),
            mtu_probe_failures: parse::counter(&netstat, "TcpExt", "TCPMTUPFail"),
        }
    }
}
