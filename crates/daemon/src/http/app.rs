//! The parts that users' requests reach.

use std::sync::Arc;

use axum::body::Body;

use super::manifests::Manifests;
use super::sessions::Sessions;
use super::shares::UserShares;
use crate::config::Config;
use crate::directory::names::Signer;
use crate::host::activity::Activity;
use crate::host::caller::Caller;
use crate::local::admin::Admin;
use crate::local::caches::Caches;
use crate::local::copies::Copies;
use crate::local::get::Getting;
use crate::local::records::Records;
use crate::local::site::Site;
use crate::local::upload::{Uploads, drain};
use crate::local::uses::Uses;
use crate::model::api_error::ApiError;
use crate::model::types::{Create, Created};
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
    pub(crate) manifests: Manifests,
    /// Uploads and downloads.
    pub(crate) transfers: UserShares,
    /// Declarations of caches, with their manifests.
    pub(crate) declarations: UserShares,
    /// Requests with long answers.
    pub(crate) answers: UserShares,
}

impl App {
    /// Declares a cache, whose manifest is the body of the request.
    ///
    /// # Errors
    /// The caller may not, there is no room, or the manifest is malformed.
    pub(crate) async fn create(
        &self,
        caller: &Caller,
        create: Create,
        mut body: Body,
    ) -> Result<Created, ApiError> {
        let received = async {
            let group = self.caches.check(caller, &create)?;
            Ok((group, self.manifests.receive(caller.uid, &mut body).await?))
        };
        match received.await {
            Ok((group, manifest)) => self.caches.create(caller, create, group, manifest).await,
            Err(error) => {
                drain(body).await;
                Err(error)
            }
        }
    }
}
