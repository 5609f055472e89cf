//! Commands of an administrator to other daemons of the site.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::admin::Admin;
use crate::host::caller::Caller;
use crate::links::link::Link;
use crate::model::api_error::{ApiError, ErrorKind};
use crate::model::message::{Answer, Ask};
use crate::model::types::{CommandResult, Limit, Status};

/// A daemon has done it, or failed to, within this time.
const ORDER_TIMEOUT: Duration = Duration::from_millis(4500);

/// The daemons of the site, for an administrator.
pub(crate) struct Site {
    pub(crate) admin: Arc<Admin>,
}

impl Site {
    /// Has this daemon and others do something: one of this name, or all that are alive.
    pub(crate) async fn rule(
        &self,
        caller: &Caller,
        what: &str,
        limit: Limit,
        host: Option<&str>,
    ) -> Result<Vec<CommandResult>, ApiError> {
        if what != "status" && !caller.rules() {
            return Err(ApiError::forbidden("only the administrator of this daemon may do that"));
        }
        let mut told = Vec::new();
        if host.is_none_or(|host| host == self.admin.config.name) {
            let status = self.admin.execute(what, limit.clone()).await?;
            told.push(CommandResult {
                host: self.admin.config.name.clone(),
                why: None,
                status: Some(status),
            });
        }
        let ask = Ask::Admin { who: caller.name.clone(), what: what.into(), limit };
        let mut asking = JoinSet::new();
        if host != Some(self.admin.config.name.as_str()) {
            for (node, addresses) in self.admin.membership.alive() {
                let (links, ask, host) = (self.admin.links.clone(), ask.clone(), host.map(str::to_owned));
                asking.spawn(async move {
                    let place = addresses.first().map_or_else(|| node.to_string(), ToString::to_string);
                    let asked = timeout(ORDER_TIMEOUT, async {
                        let link = links.reach(node, &addresses).await;
                        let link = link.map_err(|error| (place.clone(), error.to_string()))?;
                        let name = link.peer.hello.name.clone();
                        if host.is_some_and(|host| host != name) {
                            return Ok(None);
                        }
                        tell(&link, &ask)
                            .await
                            .map(|status| Some((name.clone(), status)))
                            .map_err(|why| (name, why))
                    });
                    asked
                        .await
                        .unwrap_or_else(|_| Err((place.clone(), "no answer before the timeout".into())))
                });
            }
        }
        while let Some(asked) = asking.join_next().await {
            match asked {
                Ok(Ok(Some((host, status)))) => {
                    told.push(CommandResult { host, why: None, status: Some(status) })
                }
                // The name of an unreachable daemon is unknown: it matters only if all are meant.
                Ok(Err((place, why))) if host.is_none_or(|host| host == place) => {
                    told.push(CommandResult { host: place, why: Some(why), status: None });
                }
                _ => {}
            }
        }
        if let Some(host) = host.filter(|_| told.is_empty()) {
            let why = format!("no running daemon is named {host}");
            return Err(ApiError::new(axum::http::StatusCode::NOT_FOUND, ErrorKind::Absent, why));
        }
        if !caller.rules() {
            // Transfers in progress on other hosts, and users of caches, are not public.
            told.iter_mut().filter_map(|ruled| ruled.status.as_mut()).for_each(|status| {
                status.transfers.clear();
                status.coming.clear();
                status.uses.clear();
            });
        }
        told.sort_by(|a, b| a.host.cmp(&b.host));
        Ok(told)
    }
}

async fn tell(link: &Link, ask: &Ask) -> Result<Status, String> {
    match link.ask(ask, Bytes::new()).await {
        Ok((Answer::Ok, status)) => serde_json::from_slice(&status).map_err(|error| error.to_string()),
        Ok((Answer::Rejected { why }, _)) => Err(why),
        Ok(_) => Err("it does not support this request".into()),
        Err(error) => Err(error.to_string()),
    }
}
