//! Fields: receivers and senders.

use std::net::SocketAddr;
use std::path::PathBuf;

use pyo3::prelude::*;
use tidecast::Cpus;
use tidecast::field::{
    Key, Missing, Policy, ReceiveOptions, SendOptions, Volumes, addresses, kept_key, open, share,
};
use tidecast::settings::Listen;

use crate::operation::Operation;
use crate::start::place;
use crate::{settings, usage};

/// The attributes of `tidecast._field_receiver.Receiving`.
#[derive(FromPyObject)]
pub(crate) struct Receiving {
    listen: String,
    name: String,
    streams: u32,
    volume: Option<String>,
    missing: String,
    complete: bool,
    record: Option<PathBuf>,
    steps: Option<u64>,
}

/// A key as users give it: of text that is empty, none. Without text: that of the environment.
fn given(key: Option<String>) -> PyResult<Option<Option<Key>>> {
    let text = key.or_else(|| std::env::var("TIDECAST_FIELD_KEY").ok().filter(|text| !text.is_empty()));
    Ok(match text {
        None => None,
        Some(text) if text.is_empty() => Some(None),
        Some(text) => Some(Some(text.parse().map_err(|error| usage(format!("key: {error}")))?)),
    })
}

#[pyfunction]
pub(crate) fn receive_field(
    how: Receiving,
    key: Option<String>,
    state_dir: Option<PathBuf>,
) -> PyResult<Operation> {
    let volumes = match how.volume.as_deref() {
        None => None,
        Some("live") => Some(Volumes::Live),
        Some("steps") => Some(Volumes::Steps),
        Some(other) => return Err(usage(format!("volume: {other:?}: write live or steps"))),
    };
    let missing = match how.missing.as_str() {
        "keep" => Missing::Keep,
        "nan" => Missing::Nan,
        other => return Err(usage(format!("missing: {other:?}: write keep or nan"))),
    };
    let policy = Policy::new(volumes, missing, how.complete, how.record.is_some()).map_err(usage)?;
    let key = match given(key)? {
        Some(key) => key,
        None => {
            let state = place(&settings()?, state_dir)?;
            Some(kept_key(state.as_deref()).map_err(|error| usage(error.in_full()))?)
        }
    };
    let (secret, key_file) = key.map(|key| (key.secret, key.file)).unzip();
    if !(1..=4096).contains(&how.streams) {
        return Err(usage(format!("streams: {}: from 1 to 4096", how.streams)));
    }
    if how.steps == Some(0) {
        return Err(usage("steps: 0: at least one"));
    }
    let listen: Listen = how.listen.parse().map_err(|error| usage(format!("listen: {error}")))?;
    let options = ReceiveOptions {
        listen: listen.addr(),
        streams: how.streams,
        name: how.name,
        secret,
        key_file: key_file.flatten(),
        policy,
        record: how.record,
        steps: how.steps,
        ..ReceiveOptions::default()
    };
    Ok(Operation::new(tidecast::field::receive(options)))
}

/// The attributes of `tidecast._field_sender.Sending`: words as `tidecast field send` takes them.
#[derive(FromPyObject)]
pub(crate) struct Sending {
    streams: u32,
    rate: String,
    packing: String,
    order: String,
    fec: String,
    sync: Option<String>,
    cpus: Option<String>,
}

/// Sends the steps of a feed, `MEMORY,IN,OUT`: a file in memory and two pipes, whose protocol is in
/// `docs/field-format.md`.
#[pyfunction]
pub(crate) fn send_field(
    py: Python<'_>,
    feed: String,
    to: Vec<String>,
    how: Sending,
    key: Option<String>,
) -> PyResult<Operation> {
    let key = given(key)?.ok_or_else(|| {
        usage("no key given: give key=, set TIDECAST_FIELD_KEY, or key=\"\" for receivers that are plain")
    })?;
    if !(1..=4096).contains(&how.streams) {
        return Err(usage(format!("streams: {}: from 1 to 4096", how.streams)));
    }
    let sync = how.sync.map(|at| at.parse::<SocketAddr>()).transpose();
    let cpus = how.cpus.map(|cpus| cpus.parse::<Cpus>().and_then(|cpus| cpus.numbers())).transpose();
    let options = SendOptions {
        to: py.detach(|| addresses(&to)).map_err(usage)?,
        streams: how.streams,
        rate: how.rate.parse::<tidecast::field::Pace>().map_err(|e| usage(format!("rate: {e}")))?.0,
        packing: how.packing.parse().map_err(|e| usage(format!("packing: {e}")))?,
        order: how.order.parse().map_err(|e| usage(format!("order: {e}")))?,
        parity: share(&how.fec).map_err(|e| usage(format!("fec: {e}")))?,
        key: key.map(|key| key.secret),
        sync: sync.map_err(|_| usage("sync: give an address and a port to listen on: 0.0.0.0:7600"))?,
        cpus: cpus.map_err(|e| usage(format!("cpus: {e}")))?.unwrap_or_default(),
        ..SendOptions::default()
    };
    let source = py.detach(|| open(&[format!("feed:{feed}")], None, None)).map_err(usage)?;
    Ok(Operation::new(tidecast::field::send(source, options)))
}
