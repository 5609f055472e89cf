//! The start of the transfer: the origin begins to serve, the network is chosen, and workers are told to start.

use std::net::IpAddr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use tidecast_event::bcast::{self, Open};
use tidecast_identity::NodeId;
use tidecast_swarm::plan::{self, Part};
use tokio::time::Instant;

use super::origin::Origin;
use super::planning::Planning;
use super::{Event, Group};
use crate::control::message::{Member, News, SourceIdentity, SourceMember, Start, ToWorker};
use crate::error::Error;
use crate::hosts::Host;
use crate::network::{Choice, Place, choose};
use crate::node::{Node, Stage};
use crate::plan::{Algorithm, Issue};
use crate::reach;

impl Group {
    /// Chooses the network.
    pub(super) fn start(&mut self, tell: &mut (dyn FnMut(Event) + Send)) -> Result<(), Error> {
        let choice = self.choose()?;
        let known = if choice.tried { 0 } else { choice.speed };
        tell(Event::News(bcast::News::Network { name: choice.name.clone(), rate: known }));
        self.choice = Some(choice);
        self.invite(tell);
        Ok(())
    }

    /// Starts the origin, which hashes the source if necessary, even before a peer fetches it.
    pub(super) fn open_origin(&mut self) -> Result<(), Error> {
        let opened = self.source.as_mut().and_then(|s| Some((s.opened.take()?, s.manifest.to_bytes())));
        if let Some((opened, manifest)) = opened {
            self.manifest = manifest;
            self.origin = Some(Origin::start(
                opened,
                &self.key,
                reach::listener()?,
                self.options.plain,
                self.options.algorithm,
            )?);
        }
        Ok(())
    }

    /// Lets BitTorrent clients join, if the user allows it. A failure to write the file does not affect the hosts.
    fn invite(&self, tell: &mut (dyn FnMut(Event) + Send)) {
        let Some(path) = self.options.torrent.as_ref().filter(|_| self.options.plain) else { return };
        if let Err(error) = tidecast_paths::output(path, &self.manifest, 0o666, &|| true) {
            let why = format!("cannot write {}: {error}; no other client can join", path.display());
            return tell(Event::Warning(why));
        }
        if let Some(origin) = self.members().into_iter().next() {
            tell(Event::News(bcast::News::Open(Open { torrent: path.clone(), peers: origin.addresses })));
        }
    }

    fn choose(&self) -> Result<Choice, Error> {
        let places: Vec<Place> = self.nodes.iter().map(Node::place).collect();
        choose(&self.local, &places, self.options.network.as_ref()).map_err(Error::Network)
    }

    /// Tells ready workers to start, and the other workers about them.
    pub(super) async fn start_ready(&mut self) -> Result<(), Error> {
        let ready = |(place, n): (usize, &Node)| (n.stage == Stage::Ready).then_some(place);
        let fresh: Vec<usize> = self.nodes.iter().enumerate().filter_map(ready).collect();
        if fresh.is_empty() {
            return Ok(());
        }
        // Late workers add addresses.
        self.choice = Some(self.choose()?);
        self.open_manifest_swarm().await?;
        let issue = self.number(&fresh)?;
        let members = self.members();
        let first = self.plan_manifest_swarm(issue.is_some()).await?;
        let bulks: Vec<_> = self.nodes.iter().map(|node| self.bulk(node, first.as_ref())).collect();
        if let (Some(issue), Some(origin)) = (&issue, &mut self.origin) {
            origin.follow(issue, &members).await?;
        }
        let numbers: Vec<u32> = fresh.iter().filter_map(|p| self.nodes.get(*p)?.number).collect();
        let new: Vec<Member> = members.iter().filter(|m| numbers.contains(&m.number)).cloned().collect();
        let source_identity = SourceIdentity::of(&self.options.source, self.options.records.as_deref());
        for (node, bulk) in self.nodes.iter_mut().zip(bulks) {
            match (&node.stage, &node.who, node.number) {
                (Stage::Ready, Some((id, _)), Some(me)) => {
                    let start = Start {
                        manifest: if bulk.is_some() { Vec::new() } else { self.manifest.clone() },
                        bulk,
                        dest: dest(&self.options.dest, &node.host).into_os_string().into_vec(),
                        source_identity: source_identity.clone(),
                        durable: self.options.durable,
                        force: self.options.force,
                        delete: self.options.delete,
                        bases: on_host(&self.options.bases, &node.host),
                        right: self.origin.as_ref().and_then(|origin| origin.right(*id)),
                        network: self.choice.as_ref().and_then(|c| c.subnet),
                        me,
                        classic: self.options.algorithm == Algorithm::Classic,
                        planned: self.options.algorithm.shape().is_some(),
                        source_member: source_member(node, self.origin.as_ref()),
                        news: News { members: members.clone(), issue: issue.clone() },
                    };
                    node.stage = Stage::Running;
                    node.moved = Instant::now();
                    node.send(ToWorker::Start(Box::new(start)));
                }
                (Stage::Running | Stage::Done(..), ..) => {
                    node.send(ToWorker::News(Box::new(News { members: new.clone(), issue: None })));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Numbers the workers that start now; returns the first epoch, if this makes it. Late workers are in a later epoch.
    fn number(&mut self, fresh: &[usize]) -> Result<Option<Issue>, Error> {
        let Some(shape) = self.options.algorithm.shape() else {
            (1..).zip(&mut self.nodes).for_each(|(number, node)| node.number = Some(number));
            return Ok(None);
        };
        let Some(choice) = &self.choice else { return Ok(None) };
        let of = |place: usize| {
            let addresses = choice.nodes.get(place).map_or(&[][..], Vec::as_slice);
            self.nodes.get(place).map(|node| (place, self.planned(node, addresses)))
        };
        let mut members: Vec<(usize, plan::Member)> = fresh.iter().filter_map(|place| of(*place)).collect();
        let first = self.planning.is_none();
        if first {
            let origin = self.planned_origin(&choice.origin);
            let beside = self.source_members(&mut members);
            let receivers = members.iter().map(|(_, m)| *m);
            let all = std::iter::once(origin).chain(receivers).chain(beside).collect();
            let size =
                self.source.as_ref().map_or((0, 1), |s| (s.manifest.total_len(), s.manifest.piece_length()));
            let complaints = self.origin.as_mut().and_then(|origin| origin.swarm().complaints());
            let (topology, rate) = (self.options.topology.as_ref(), self.link_rate());
            self.planning = Some(Planning::new(all, topology, size, rate, shape, complaints)?);
        }
        let Some(planning) = &mut self.planning else { return Ok(None) };
        for (turn, (place, member)) in (1..).zip(members) {
            let number = if first { Some(turn) } else { planning.joined(member) };
            let Some(node) = self.nodes.get_mut(place) else { continue };
            node.number = number;
            if number.is_none() {
                node.fail("the plan has the maximum number of members".into());
            }
        }
        Ok(first.then(|| planning.issue()))
    }

    /// Chooses the additional sources, evenly over the hosts that see the source. As receivers they are leaves if other
    /// hosts can relay, because they already send as sources.
    fn source_members(&mut self, members: &mut [(usize, plan::Member)]) -> Vec<plan::Member> {
        let sees = |(place, member): &(usize, plan::Member)| {
            let hello = self.nodes.get(*place).and_then(|n| n.who.as_ref());
            member.part == Part::Relay && hello.is_some_and(|(_, hello)| hello.source_offer.is_some())
        };
        let able: Vec<usize> =
            members.iter().enumerate().filter(|(_, m)| sees(m)).map(|(at, _)| at).collect();
        let count = able.len().min(self.options.sources.saturating_sub(1) as usize);
        let (receivers, spare) = (members.len() as u32, members.len() >= 4 * count);
        let mut source_members = Vec::new();
        for turn in 0..count {
            let Some((place, member)) =
                able.get(turn * able.len() / count).and_then(|at| members.get_mut(*at))
            else {
                continue;
            };
            source_members.push(plan::Member { part: Part::Source, ..*member });
            member.part = if spare { Part::Leaf } else { member.part };
            if let Some(node) = self.nodes.get_mut(*place) {
                // The origin and the receivers come first.
                node.source_member = Some(receivers + 1 + turn as u32);
            }
        }
        source_members
    }

    /// Distributes a new epoch, if there is one.
    pub(super) async fn replan(&mut self) -> Result<(), Error> {
        let Some(planning) = &mut self.planning else { return Ok(()) };
        let failed = self.nodes.iter().filter(|n| matches!(n.stage, Stage::Failed(_)));
        failed.flat_map(|n| [n.number, n.source_member]).flatten().for_each(|number| planning.gone(number));
        let Some(issue) = planning.poll() else { return Ok(()) };
        tracing::debug!(?issue, "a new epoch");
        let members = self.members();
        if let Some(origin) = &mut self.origin {
            origin.follow(&issue, &members).await?;
        }
        for node in self.nodes.iter_mut().filter(|n| matches!(n.stage, Stage::Running | Stage::Done(..))) {
            node.send(ToWorker::News(Box::new(News { members: Vec::new(), issue: Some(issue.clone()) })));
        }
        Ok(())
    }

    /// All members, the origin first.
    pub(super) fn members(&self) -> Vec<Member> {
        let Some(choice) = &self.choice else { return Vec::new() };
        let at = |ips: &[IpAddr], port: u16| ips.iter().map(|ip| (*ip, port).into()).collect();
        let port = self.origin.as_ref().map_or(0, |origin| origin.port);
        let origin = Member { number: 0, node: self.key.id().0, addresses: at(&choice.origin, port) };
        let other = |(node, ips): (&Node, &Vec<IpAddr>)| {
            let (id, hello) = node.who.as_ref().filter(|_| node.takes_part())?;
            Some(Member { number: node.number?, node: id.0, addresses: at(ips, hello.port) })
        };
        let others = self.nodes.iter().zip(&choice.nodes).filter_map(other);
        let source = |(node, ips): (&Node, &Vec<IpAddr>)| {
            let (_, hello) = node.who.as_ref().filter(|_| node.takes_part())?;
            let source_offer = hello.source_offer.as_ref()?;
            Some(Member {
                number: node.source_member?,
                node: source_offer.node,
                addresses: at(ips, source_offer.port),
            })
        };
        let sources = self.nodes.iter().zip(&choice.nodes).filter_map(source);
        std::iter::once(origin).chain(others).chain(sources).collect()
    }
}

/// A worker's part as a source, if it has one.
fn source_member(node: &Node, origin: Option<&Origin>) -> Option<SourceMember> {
    let source_offer = node.who.as_ref()?.1.source_offer.as_ref()?;
    Some(SourceMember {
        number: node.source_member?,
        right: origin.and_then(|origin| origin.right(NodeId(source_offer.node))),
    })
}

/// The bytes of these paths on one host.
fn on_host(templates: &[PathBuf], host: &Host) -> Vec<Vec<u8>> {
    templates.iter().map(|base| dest(base, host).into_os_string().into_vec()).collect()
}

/// The path on one host.
fn dest(template: &Path, host: &Host) -> PathBuf {
    let (text, blank) = (template.as_os_str().as_bytes(), b"{host}");
    let mut out = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.windows(blank.len()).position(|w| w == blank) {
        let (before, tail) = rest.split_at(at);
        out.extend_from_slice(before);
        out.extend_from_slice(host.name.as_bytes());
        rest = tail.get(blank.len()..).unwrap_or_default();
    }
    out.extend_from_slice(rest);
    PathBuf::from(std::ffi::OsString::from_vec(out))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_may_name_its_host() {
        let host = Host::named("n1");
        let on = |text: &str| dest(Path::new(text), &host).display().to_string();
        assert_eq!(on("/scratch/data"), "/scratch/data");
        assert_eq!(on("/scratch/{host}/data.{host}"), "/scratch/n1/data.n1");
    }
}
