//! One function for each request: the caller, the meaning, and the response.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use serde::Deserialize;

use super::app::App;
use super::audited::Audited;
use super::extract::{JsonBody, QueryOf, id};
use crate::host::caller::{Caller, is_stranger};
use crate::model::api_error::ApiError;
use crate::model::name::CacheName;
use crate::model::types::{
    CacheInfo, Checked, CommandResult, Create, Created, Event, Extend, Get, Got, Holder, Limit, Offered,
    Replicate, Status,
};

/// A client may wait so long for one answer, seconds.
const WAIT: u64 = 60;

type Answer<T> = Result<Json<T>, ApiError>;
type Daemon = State<Arc<App>>;

/// Parameters of a list.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Which {
    name: Option<String>,
    owner: Option<String>,
}

/// Which host is meant; None: all.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Host {
    host: Option<String>,
}

fn named(which: &Which) -> Result<CacheName, ApiError> {
    let text =
        which.name.as_deref().ok_or_else(|| ApiError::malformed("query parameter missing: ?name=NAME"))?;
    text.parse().map_err(ApiError::malformed)
}

pub(super) async fn status(State(app): Daemon, caller: Caller) -> Answer<Status> {
    if is_stranger(caller.uid, app.config.serves) {
        return Ok(Json(app.admin.public_status()));
    }
    // A transfer in progress is shown to its owner and the administrator only.
    let coming = app.requests.under_way(|owner| caller.rules() || owner == caller.name);
    let mut status = app.admin.status()?.with_transfers(coming);
    status.uses = app.uses.all_uses(|owner, user| caller.may_know(owner, user));
    Ok(Json(status))
}

pub(super) async fn list(
    State(app): Daemon,
    caller: Caller,
    QueryOf(which): QueryOf<Which>,
) -> Answer<Vec<CacheInfo>> {
    let name = which.name.as_deref().map(str::parse::<CacheName>).transpose().map_err(ApiError::malformed)?;
    Ok(Json(app.caches.list(&caller, name, which.owner).await?))
}

pub(super) async fn show(State(app): Daemon, caller: Caller, Path(text): Path<String>) -> Answer<CacheInfo> {
    Ok(Json(app.caches.show(&caller, id(&text)?).await?))
}

pub(super) async fn create(
    State(app): Daemon,
    caller: Caller,
    headers: HeaderMap,
    manifest: Body,
) -> Answer<Created> {
    let head = headers
        .get("tidecast-create")
        .ok_or_else(|| ApiError::malformed("header missing: tidecast-create"))?;
    let create: Create = serde_json::from_slice(head.as_bytes()).map_err(ApiError::malformed)?;
    let audited = Audited::on(&app.audit, &caller, "create", format!("{}/{}", app.config.name, create.name));
    Ok(Json(audited.ended(app.create(&caller, create, manifest).await)?))
}

pub(super) async fn content(
    State(app): Daemon,
    caller: Caller,
    Path(text): Path<String>,
    body: Body,
) -> Answer<CacheInfo> {
    let (id, audited) =
        (id(&text)?, Audited::on(&app.audit, &caller, "commit", app.records.noted(&caller, &text)));
    let done = app.uploads.take(&caller, id, body).await;
    let audited = match &done {
        Ok(info) => audited.to(&info.name),
        Err(_) => audited,
    };
    Ok(Json(audited.ended(done)?))
}

pub(super) async fn extend(
    State(app): Daemon,
    caller: Caller,
    Path(text): Path<String>,
    JsonBody(extend): JsonBody<Extend>,
) -> Answer<CacheInfo> {
    let (id, audited) =
        (id(&text)?, Audited::on(&app.audit, &caller, "extend", app.records.noted(&caller, &text)));
    Ok(Json(audited.ended(app.caches.extend(&caller, id, extend.lease).await)?))
}

pub(super) async fn pin(State(app): Daemon, caller: Caller, Path(text): Path<String>) -> Answer<CacheInfo> {
    let (id, audited) =
        (id(&text)?, Audited::on(&app.audit, &caller, "pin", app.records.noted(&caller, &text)));
    Ok(Json(audited.ended(app.caches.pin(&caller, id, true).await)?))
}

pub(super) async fn unpin(State(app): Daemon, caller: Caller, Path(text): Path<String>) -> Answer<CacheInfo> {
    let (id, audited) =
        (id(&text)?, Audited::on(&app.audit, &caller, "unpin", app.records.noted(&caller, &text)));
    Ok(Json(audited.ended(app.caches.pin(&caller, id, false).await)?))
}

pub(super) async fn remove(State(app): Daemon, caller: Caller, Path(text): Path<String>) -> Answer<()> {
    let (id, audited) =
        (id(&text)?, Audited::on(&app.audit, &caller, "remove", app.records.noted(&caller, &text)));
    Ok(Json(audited.ended(app.caches.remove(&caller, id).await)?))
}

pub(super) async fn get(State(app): Daemon, caller: Caller, JsonBody(get): JsonBody<Get>) -> Answer<Got> {
    let name: CacheName = get.name.parse().map_err(ApiError::malformed)?;
    let wait = Duration::from_secs(get.wait.min(WAIT));
    let audited = Audited::on(&app.audit, &caller, "get", get.name.clone());
    // A daemon of another user fetches caches itself: here this user's own fetches would wait for them.
    let fetches = !is_stranger(caller.uid, app.config.serves);
    let got = app.getting.get(&caller, name, (wait, fetches), get).await;
    let audited = match &got {
        // It will be asked for again.
        Ok(Got::Wait { .. }) => return got.map(Json),
        Ok(Got::Ready { info, .. }) => audited.to(&info.name),
        Err(_) => audited,
    };
    Ok(Json(audited.ended(got)?))
}

pub(super) async fn replicate(
    State(app): Daemon,
    caller: Caller,
    Path(text): Path<String>,
    JsonBody(replicate): JsonBody<Replicate>,
) -> Answer<Vec<Offered>> {
    let (id, audited) =
        (id(&text)?, Audited::on(&app.audit, &caller, "replicate", app.records.noted(&caller, &text)));
    let offered = app.copies.replicate(&caller, id, replicate.to).await;
    let told = |one: &Offered| format!("{}: {}", one.host, one.why.as_ref().unwrap_or(&one.answer));
    let words = |all: &Vec<Offered>| all.iter().map(told).collect::<Vec<_>>().join("; ");
    Ok(Json(audited.ended_with(offered, words)?))
}

pub(super) async fn holders(
    State(app): Daemon,
    caller: Caller,
    QueryOf(which): QueryOf<Which>,
) -> Answer<Vec<Holder>> {
    Ok(Json(app.copies.holders(&caller, named(&which)?).await?))
}

pub(super) async fn history(
    State(app): Daemon,
    caller: Caller,
    QueryOf(which): QueryOf<Which>,
) -> Answer<Vec<Event>> {
    Ok(Json(app.admin.history(&caller, which.name).await?))
}

pub(super) async fn fsck(State(app): Daemon, caller: Caller) -> Answer<Checked> {
    let audited = Audited::on(&app.audit, &caller, "fsck", "");
    let words = |report: &Checked| match (report.clean, report.lost) {
        (true, _) => "clean".into(),
        (false, 0) if !report.unread.is_empty() => "unread".into(),
        (false, 0) => "repaired".into(),
        _ => "damaged".into(),
    };
    Ok(Json(audited.ended_with(checked(&app, &caller).await, words)?))
}

async fn checked(app: &App, caller: &Caller) -> Result<Checked, ApiError> {
    if !caller.rules() {
        return Err(ApiError::forbidden("only the administrator of this daemon may do that"));
    }
    app.repair.fsck(&caller.name).await
}

pub(super) async fn site(
    State(app): Daemon,
    caller: Caller,
    Path(what): Path<String>,
    QueryOf(which): QueryOf<Host>,
    JsonBody(limit): JsonBody<Limit>,
) -> Answer<Vec<CommandResult>> {
    let whose = which.host.as_ref().map_or("all hosts".into(), |host| format!("{host:?}"));
    let audited = Audited::on(&app.audit, &caller, format!("{} at {whose}", limit.wish(&what)), "");
    let ruled = app.site.rule(&caller, &what, limit, which.host.as_deref()).await;
    if what == "status" {
        return ruled.map(Json);
    }
    let words = |all: &Vec<CommandResult>| match all.iter().filter(|one| one.status.is_none()).count() {
        0 => "ok".into(),
        n => format!("{n} of {} hosts failed", all.len()),
    };
    Ok(Json(audited.ended_with(ruled, words)?))
}

pub(super) async fn admin(
    State(app): Daemon,
    caller: Caller,
    Path(what): Path<String>,
    JsonBody(limit): JsonBody<Limit>,
) -> Answer<Status> {
    let audited = Audited::on(&app.audit, &caller, limit.wish(&what), "");
    let done = app.admin.admin(&caller, &what, limit).await;
    if what == "status" { done.map(Json) } else { audited.ended(done).map(Json) }
}
