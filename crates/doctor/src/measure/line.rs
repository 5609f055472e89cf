//! Two network namespaces and the line between them.

use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

use tidecast_wan::line::Config;
use tidecast_wan::pump::Pump;
use tidecast_wan::tun;

use super::flow::{Rate, flow};
use super::namespace::Namespace;
use super::settings::{Error, Settings};
use crate::links;

const DEVICE: &str = "line";
const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(198, 18, 0, 1), Ipv4Addr::new(198, 18, 0, 2)];
/// Least and most bytes that wait at an end of the line.
const QUEUE: (u64, u64) = (1 << 20, 256 << 20);

/// Two network namespaces joined by a line with a rate and a round-trip time.
#[derive(Debug)]
pub struct Line {
    ends: [Namespace; 2],
    pumps: Vec<Pump>,
    rtt: Duration,
}

impl Line {
    /// Makes them. `rate` is in bits per second.
    ///
    /// # Errors
    /// This user may make no namespaces, or there is no TUN device.
    pub fn new(rate: u64, rtt: Duration) -> Result<Self, Error> {
        let namespace = || Namespace::new().map_err(Error::Namespace);
        let ends = [namespace()?, namespace()?];
        let open = |end: &Namespace| {
            end.run(|| tun::open_here(DEVICE, false).map_err(io::Error::other))
                .map_err(|e| Error::Line(e.to_string()))
        };
        let (one, other) = (open(&ends[0])?, open(&ends[1])?);
        let mut line = Self { ends, pumps: Vec::new(), rtt };
        line.join(one, other, rate).map_err(|e| Error::Line(e.to_string()))?;
        Ok(line)
    }

    /// The rate of flows from one end to the other with these settings of both ends.
    ///
    /// # Errors
    /// A setting is refused, or a flow fails.
    pub fn rate(&self, settings: &Settings) -> Result<Rate, Error> {
        let mut all = settings.sysctls.clone();
        // What one flow learns about the path must not help the next.
        all.insert("net.ipv4.tcp_no_metrics_save".into(), "1".into());
        for end in &self.ends {
            for (name, value) in &all {
                let (path, text) = (format!("/proc/sys/{}", name.replace('.', "/")), value.clone());
                end.run(move || std::fs::write(path, text))
                    .map_err(|source| Error::Parameter { name: name.clone(), source })?;
            }
            let mtu = settings.mtu;
            end.run(move || links::set_mtu(links::index(DEVICE)?, mtu))
                .map_err(|e| Error::Line(format!("MTU {mtu}: {e}")))?;
        }
        let [here, there] = &self.ends;
        flow(here, there, ADDRESSES[1], settings.streams, self.rtt).map_err(Error::Flow)
    }

    fn join(&mut self, one: File, other: File, rate: u64) -> io::Result<()> {
        for (end, address) in self.ends.iter().zip(ADDRESSES) {
            end.run(move || links::set_up(links::index(DEVICE)?, address))?;
        }
        let in_flight = u128::from(rate) * self.rtt.as_micros() / 8_000_000;
        let queue = u64::try_from(in_flight * 2).unwrap_or(u64::MAX).clamp(QUEUE.0, QUEUE.1);
        let config = Config { rate, queue, delay: self.rtt / 2, loss: 0.0, dup: 0.0, reorder: 0.0 };
        self.pumps.push(Pump::start(one.try_clone()?, other.try_clone()?, config, 1, false)?);
        self.pumps.push(Pump::start(other, one, config, 2, false)?);
        Ok(())
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        for pump in &self.pumps {
            pump.stop();
        }
        for end in &self.ends {
            // Ends the reads of the pumps.
            let _ = end.run(|| links::delete(links::index(DEVICE)?));
        }
    }
}
