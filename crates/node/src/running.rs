//! A running swarm, and its searches for peers.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;

use tidecast_discovery::DiscoveredPeers;
use tidecast_event::{Context as _, Error, Fault as _, Progress, Resumed, Stage, Warning};
use tidecast_metainfo::Manifest;
use tidecast_net::{Group, Notice, OnVerified, Security, Summary, Swarm, SwarmOptions};
use tidecast_store::Opened;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::finders::{Finders, Wanted};
use crate::messages::MessageSender;
use crate::notice::{stalled, web_seed, withdrew};
use crate::plain;
use crate::settings::SwarmSettings;
use crate::totals::progress;
use crate::unreachable::Unreachable;

/// Damaged pieces that are reported one by one.
const TOLD: u64 = 8;
/// Different warnings that are given; a crowd of hostile peers must not flood the log.
const WARNINGS: usize = 100;

/// The part of this node in a swarm, besides serving its data.
pub enum Part {
    /// Nothing: it has everything.
    Seed,
    /// It fetches everything.
    Get,
    /// It fetches requested data only; the callback for verified pieces, and whether it joins a plan.
    OnDemand(OnVerified, bool),
}

/// A running swarm, and its searches for peers.
pub struct Running {
    /// The swarm.
    pub swarm: Swarm,
    /// The manifest.
    pub manifest: Arc<Manifest>,
    notices: Option<mpsc::Receiver<Notice>>,
    finders: Option<Finders>,
    forwarding: Option<JoinHandle<()>>,
    damaged: u64,
    /// Warnings that were given; the same one is not given twice.
    said: HashSet<String>,
    /// The warning about the last peer that withdrew pieces.
    withdrawn: Option<String>,
    unreachable: Unreachable,
    seeds: bool,
    /// The web seeds that are asked.
    pub web_seeds: Vec<String>,
    /// Addresses that the user or a ticket has named.
    pub told: Vec<SocketAddr>,
}

impl Running {
    /// Opens the sockets and starts.
    ///
    /// # Errors
    /// Those of [`Swarm::start`].
    pub fn start(
        opened: Opened,
        security: Security,
        settings: &SwarmSettings,
        part: Part,
    ) -> Result<Self, Error> {
        let manifest = opened.store.manifest().clone();
        // A member of a plan gets its data from the maker.
        let web_seeds = settings.web_seeds && matches!(part, Part::Get | Part::OnDemand(_, false));
        let asked = if web_seeds { manifest.web_seeds().to_vec() } else { Vec::new() };
        let seeds = matches!(part, Part::Seed);
        let mut swarm = Swarm::start(SwarmOptions {
            opened,
            listen: if settings.port.is_some() { Vec::new() } else { vec![settings.listen] },
            listeners: Vec::new(),
            shared_port: None,
            port: settings.port.clone(),
            network: settings.network.clone(),
            security,
            policy: settings.policy,
            seed_only: matches!(part, Part::Seed),
            group: match part {
                Part::Seed => Group::Make,
                Part::OnDemand(_, true) => Group::Join,
                _ => Group::None,
            },
            on_demand: if let Part::OnDemand(verified, _) = part { Some(verified) } else { None },
            planned: false,
            roots: None,
            web_seeds,
            throttle: settings.throttle.clone(),
        })
        .fault()?;
        let notices = swarm.notices();
        Ok(Self {
            swarm,
            manifest,
            notices,
            finders: None,
            forwarding: None,
            damaged: 0,
            said: HashSet::new(),
            withdrawn: None,
            unreachable: Unreachable::default(),
            seeds,
            web_seeds: asked,
            told: Vec::new(),
        })
    }

    /// The port that is announced to peers.
    pub fn port(&self) -> u16 {
        self.swarm.listen_addrs().first().map_or(0, SocketAddr::port)
    }

    /// Takes the results of the finders from now on.
    pub fn find(&mut self, finders: Finders, mut finds: mpsc::Receiver<DiscoveredPeers>) {
        let sink = self.swarm.finder();
        self.finders = Some(finders);
        self.forwarding = Some(tokio::spawn(async move {
            while let Some(found) = finds.recv().await {
                for addr in found.peers {
                    if !sink.found(addr).await {
                        return;
                    }
                }
            }
        }));
    }

    /// The next notice; waits forever when there will be none.
    pub async fn notice(&mut self) -> Notice {
        match &mut self.notices {
            Some(notices) => match notices.recv().await {
                Some(notice) => notice,
                None => std::future::pending().await,
            },
            None => std::future::pending().await,
        }
    }

    /// The next thing to tell, if there is any now.
    pub fn notice_now(&mut self) -> Option<Notice> {
        self.notices.as_mut()?.try_recv().ok()
    }

    /// Tells a notice. An error of the store ends a download, so it is handed back.
    pub fn handle_notice(
        &mut self,
        notice: Notice,
        messages: &MessageSender<'_>,
    ) -> Option<Arc<tidecast_store::Error>> {
        let who = |addr: SocketAddr, node: Option<tidecast_identity::NodeId>| match node {
            Some(node) => format!("{addr} (node {})", node.short()),
            None => addr.to_string(),
        };
        match notice {
            Notice::Banned { addr, node, why } => {
                messages.warning(format!("peer {} is banned: {}", who(addr, node), plain(&why)));
            }
            Notice::Refused { addr, why } => {
                messages.warning(format!("peer {addr}: {}", plain(&why)));
            }
            // By its host alone: each try comes from another port.
            Notice::Rejected { addr, why } => {
                self.warn(format!("a node at {} was rejected: {why}", addr.ip().to_canonical()), messages);
            }
            Notice::Withdrew { addr } => {
                // By its host alone: it may come back from another port.
                let text = withdrew(addr);
                self.withdrawn = Some(text.clone());
                self.warn(text, messages);
            }
            Notice::WebSeed { url, why } => {
                let text = web_seed(&url, &why);
                self.withdrawn = Some(text.clone());
                self.warn(text, messages);
            }
            Notice::Damaged { piece } => self.report_damage(piece, messages),
            // A seed waits for incoming connections: many found addresses may be dead.
            Notice::Unreachable { addr, why, told } if told || !self.seeds => {
                self.unreachable.failed(addr, &why, told);
            }
            Notice::Unreachable { .. } => {}
            Notice::Stalled { addrs, silent, sending, missing } => {
                let message = stalled(&addrs, silent, sending, missing);
                let silent = Some(silent.as_secs());
                let sending = Some(sending);
                let (peers, peer, reason) = (Some(addrs), None, None);
                messages.silence(Warning { message, peer, reason, peers, silent_seconds: silent, sending });
            }
            Notice::Resumed { silent, sending } => {
                messages.resumed(Resumed { silent_seconds: silent.as_secs(), sending });
            }
            Notice::Store { error } => return Some(error),
        }
        None
    }

    /// A warning, once, and not too many.
    pub fn warn(&mut self, text: String, messages: &MessageSender<'_>) {
        if self.said.len() >= WARNINGS || self.said.contains(&text) {
            return;
        }
        messages.warning(text.as_str());
        self.said.insert(text);
        if self.said.len() == WARNINGS {
            messages.warning("further warnings are not shown");
        }
    }

    fn report_damage(&mut self, piece: u32, messages: &MessageSender<'_>) {
        self.damaged += 1;
        if self.damaged <= TOLD {
            let files: Vec<String> = self
                .manifest
                .spans(piece, 0, self.manifest.piece_len(piece))
                .filter_map(|span| self.manifest.file(span.file))
                .map(|file| file.path().to_string())
                .take(4)
                .collect();
            messages.warning(format!("piece {piece} does not match the manifest, in {}", files.join(", ")));
        } else if self.damaged == TOLD + 1 {
            messages.warning("more pieces do not match the manifest; `tidecast verify` lists the files");
        }
    }

    /// The last peer that withdrew pieces, if there was one.
    pub fn withdrawn(&self) -> Option<&str> {
        self.withdrawn.as_deref()
    }

    /// Pieces of the source that do not match the manifest.
    pub fn damaged(&self) -> u64 {
        self.damaged
    }

    /// The progress, if known yet; the trackers are informed. Without rates.
    #[must_use]
    pub fn look(&self, stage: Stage) -> Option<Progress> {
        let now = self.swarm.progress().borrow().clone();
        if now.pieces == 0 && self.manifest.piece_count() > 0 {
            return None;
        }
        if let Some(finders) = &self.finders {
            let left = now.wanted_bytes.saturating_sub(now.verified_bytes);
            finders.progress(now.received_bytes, now.sent_bytes, left);
        }
        Some(progress(stage, &now))
    }

    /// Looks for peers from now on.
    pub async fn find_more(&mut self, settings: &SwarmSettings, left: u64, messages: &MessageSender<'_>) {
        let wanted = Wanted::of(&self.manifest, settings, self.swarm.peer_id(), self.port(), left);
        let (finders, finds) = Finders::start(wanted, messages).await;
        self.find(finders, finds);
    }

    /// Continues running searches, or starts missing ones.
    pub async fn continue_finding(
        &mut self,
        finders: Option<(Finders, mpsc::Receiver<DiscoveredPeers>)>,
        settings: &SwarmSettings,
        messages: &MessageSender<'_>,
    ) {
        match finders {
            Some((finders, finds)) => self.find(finders, finds),
            None => self.find_more(settings, self.manifest.total_len().max(1), messages).await,
        }
    }

    /// Tells of trackers and peers that do not answer.
    pub fn report_finder_errors(&mut self, messages: &MessageSender<'_>) {
        let connected = {
            let progress = self.swarm.progress();
            let now = progress.borrow();
            now.peers + now.web_seeds > 0
        };
        self.unreachable.report(connected, messages);
        for trouble in self.finders.as_ref().map(Finders::troubles).unwrap_or_default() {
            self.warn(trouble, messages);
        }
    }

    /// Ends everything cleanly.
    ///
    /// # Errors
    /// The swarm has ended unexpectedly.
    pub async fn stop(self) -> Result<Summary, Error> {
        if let Some(forwarding) = self.forwarding {
            forwarding.abort();
        }
        let now = self.swarm.progress().borrow().clone();
        let goodbye = async {
            if let Some(finders) = self.finders {
                // Trackers learn that all is there also when it came between two looks.
                let left = now.wanted_bytes.saturating_sub(now.verified_bytes);
                finders.progress(now.received_bytes, now.sent_bytes, left);
                finders.stop().await;
            }
        };
        let (summary, ()) = tokio::join!(self.swarm.stop(), goodbye);
        summary.context("the swarm ended unexpectedly")
    }
}
