//! The settings of a daemon.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;
use tidecast_daemon::CatalogueAt;
use tidecast_daemon::api::types::Method;
use tidecast_mover::server::User;
use tidecast_text::{Size, Span};

use super::values::{Listen, Text};

/// The table `[daemon]` of the configuration.
#[derive(Debug, Default, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Table {
    pub(crate) dir: Option<PathBuf>,
    pub(crate) system: bool,
    pub(crate) confine: Option<bool>,
    pub(crate) listen: Option<Text<Listen>>,
    pub(crate) name: Option<String>,
    pub(crate) machine: Option<String>,
    pub(crate) peer: Vec<String>,
    pub(crate) catalogue: Option<Text<CatalogueAt>>,
    pub(crate) trust: Option<PathBuf>,
    pub(crate) certificate: Option<PathBuf>,
    pub(crate) capacity: Option<Text<Size>>,
    pub(crate) quota: Option<Text<Size>>,
    pub(crate) quotas: BTreeMap<String, Text<Size>>,
    pub(crate) lease: Option<Text<Span>>,
    pub(crate) lease_cap: Option<Text<Span>>,
    pub(crate) methods: Vec<Method>,
    pub(crate) requirements: Option<Text<Requirements>>,
    pub(crate) owners: Vec<String>,
    pub(crate) transfers: Option<usize>,
    pub(crate) per_source: Option<usize>,
    pub(crate) upload: Option<Text<Size>>,
    pub(crate) download: Option<Text<Size>>,
    pub(crate) disk_rate: Option<Text<Size>>,
    pub(crate) cores: Option<f64>,
    pub(crate) busy: Option<f64>,
    pub(crate) memory: Option<Text<Size>>,
    pub(crate) nice: Option<i32>,
    pub(crate) on_demand: Option<bool>,
    pub(crate) local_discovery: Option<bool>,
    pub(crate) dht: Option<Vec<String>>,
    pub(crate) admins: Vec<String>,
    pub(crate) serve: Option<PathBuf>,
    pub(crate) serve_listen: Option<Text<Listen>>,
    pub(crate) serve_read_only: bool,
    pub(crate) serve_as: Option<User>,
    pub(crate) serve_as_root: bool,
    pub(crate) serve_trust_metadata: bool,
}

/// What caches must be like: a ClassAd expression that can be true or false.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Requirements(pub(crate) String);

impl std::str::FromStr for Requirements {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        tidecast_daemon::check_requirements(text).map(|()| Self(text.to_owned()))
    }
}
