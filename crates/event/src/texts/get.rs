//! Texts of a download.

use std::time::Duration;

use tidecast_text::{Size, Span, bytes_per_second, count};

use super::{existing_files, plain};
use crate::Totals;
use crate::bcast::ExistingFiles;
use crate::get::Done;

/// Peers named one by one.
const NAMED: usize = 8;

impl Done {
    /// Lines for people.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let (path, files) = (self.path.display().to_string(), count(self.files, "file"));
        let took = Span(Duration::from_secs_f64(self.get_seconds));
        let mut lines =
            vec![format!("{path}: {files}, {}, every piece verified, in {took}", Size(self.file_bytes))];
        let found = ExistingFiles {
            replaced: self.files_replaced,
            replaced_foreign: 0,
            stale: self.files_stale,
            foreign: self.files_foreign,
            deleted: self.files_deleted,
        };
        lines.extend(existing_files::lines(|of| (of(&found), path.clone())));
        if self.totals.received > 0 {
            lines.extend(sources(&self.totals, self.get_seconds));
        } else {
            lines.push("no data was fetched".to_owned());
        }
        if self.totals.sent > 0 {
            let to = self.totals.peers.iter().filter(|p| p.sent > 0).count();
            lines.push(format!("sent {} to {}", Size(self.totals.sent), count(to as u64, "peer")));
        }
        lines.extend(self.efficiency.as_ref().map(|of| {
            format!(
                "efficiency {:.0}%: this node's link (rate {}) needs at least {}",
                of.efficiency * 100.0,
                existing_files::known_from(of.link_rate_from),
                Span(Duration::from_secs_f64(of.bound_seconds))
            )
        }));
        lines
    }
}

/// The peers and web seeds that sent data.
fn sources(totals: &Totals, seconds: f64) -> Vec<String> {
    let mut from: Vec<_> = totals.peers.iter().filter(|p| p.received > 0).collect();
    from.sort_by_key(|p| std::cmp::Reverse(p.received));
    let webs: Vec<_> = totals.web_seeds.iter().filter(|s| s.received > 0).collect();
    let mut sources = vec![count(from.len() as u64, "peer")];
    sources.extend((!webs.is_empty()).then(|| count(webs.len() as u64, "web seed")));
    let (sources, rate) = (sources.join(" and "), bytes_per_second(totals.received as f64 / seconds));
    let mut lines = vec![format!("received {} from {sources} ({rate})", Size(totals.received))];
    lines.extend(
        from.iter()
            .take(NAMED)
            .map(|peer| format!("  {} from {} {}", Size(peer.received), peer.addr, plain(&peer.client))),
    );
    lines.extend(
        webs.iter().take(NAMED).map(|web| format!("  {} from {}", Size(web.received), plain(&web.url))),
    );
    lines
}
