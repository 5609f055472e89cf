//! The parts that users' requests reach.

use std::sync::Arc;

use super::sessions::Sessions;
use crate::config::Config;
use crate::directory::names::Signer;
use crate::host::activity::Activity;
use crate::local::admin::Admin;
use crate::local::caches::Caches;
use crate::local::copies::Copies;
use crate::local::get::Getting;
use crate::local::records::Records;
use crate::local::site::Site;
use crate::local::upload::Uploads;
use crate::local::uses::Uses;
use crate::storage::audit::Audit;
use crate::storage::store::Store;
use crate::transfer::repair::Repair;
use crate::transfer::requests::Requests;

/// The parts of a daemon that its users have to do with.
pub(crate) struct App {
    pub(crate) config: Arc<Config>,
    pub(crate) store: Arc<Store>,
    pub(crate) audit: Arc<Audit>,
    pub(crate) activity: Arc<Activity>,
    pub(crate) signer: Arc<Signer>,
    pub(crate) requests: Arc<Requests>,
    pub(crate) repair: Repair,
    pub(crate) records: Arc<Records>,
    pub(crate) uses: Arc<Uses>,
    pub(crate) uploads: Arc<Uploads>,
    pub(crate) caches: Caches,
    pub(crate) getting: Getting,
    pub(crate) copies: Copies,
    pub(crate) admin: Arc<Admin>,
    pub(crate) site: Site,
    pub(crate) sessions: Sessions,
}
