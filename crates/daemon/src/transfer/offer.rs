//! Offers a copy of a cache to another daemon.

use std::sync::Arc;

use bytes::Bytes;
use tidecast_classad::Ad;
use tidecast_depot::CacheRecord;

use crate::links::link::Link;
use crate::model::message::{Answer, Ask};
use crate::model::types::Offered;
use crate::policy::ads;

/// The result of an offer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// It has the cache.
    Has,
    /// It takes it.
    Takes(String),
    /// It does not take it.
    Rejects(String),
    /// It does not answer.
    Unreachable(String),
}

impl Reply {
    /// It has the cache, or is about to.
    pub(crate) fn is_taken(&self) -> bool {
        matches!(self, Self::Has | Self::Takes(_))
    }

    /// As the API tells it.
    pub(crate) fn told(self, host: String) -> Offered {
        let (answer, why) = match self {
            Self::Has => ("ok", None),
            Self::Takes(why) => ("wait", Some(why)),
            Self::Rejects(why) => ("rejected", Some(why)),
            Self::Unreachable(why) => ("unreachable", Some(why)),
        };
        Offered { host, answer: answer.into(), why }
    }
}

/// Offers this cache.
pub(crate) async fn offer(record: &CacheRecord, link: &Link) -> Reply {
    // Without an ad the peer decides later.
    let ad = ads::cache(record).map(|ad| ad.to_string()).unwrap_or_default();
    let ask = Ask::Offer { name: record.full_name(), owner: record.owner.clone(), ad };
    match link.ask(&ask, Bytes::new()).await {
        Ok((Answer::Ok | Answer::Cache(_), _)) => Reply::Has,
        Ok((Answer::Wait { why, .. }, _)) => Reply::Takes(why),
        Ok((Answer::Rejected { why }, _)) => Reply::Rejects(why),
        Ok((Answer::Absent, _)) => Reply::Rejects("it cannot see this cache on the offering host".into()),
        Ok((Answer::NotUnderstood, _)) => Reply::Rejects("it does not support this request".into()),
        Err(error) => Reply::Unreachable(error.to_string()),
    }
}

/// Whether the cache's policy allows this daemon to have a copy, and both ads agree.
pub(crate) async fn suits(cache: &Ad, link: &Arc<Link>) -> bool {
    let Ok((Answer::Ok, ad)) = link.ask(&Ask::Ad, Bytes::new()).await else { return false };
    let Ok(ad) = Ad::parse(&ad) else { return false };
    matches!(ads::agree(cache, &ad, crate::clock::now()), Ok(true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_told_in_the_words_of_the_api() {
        for (reply, taken, answer, why) in [
            (Reply::Has, true, "ok", None),
            (Reply::Takes("the transfer has started".into()), true, "wait", Some("the transfer has started")),
            (Reply::Rejects("no".into()), false, "rejected", Some("no")),
            (Reply::Unreachable("gone".into()), false, "unreachable", Some("gone")),
        ] {
            assert_eq!(reply.is_taken(), taken);
            let told = reply.told("node1".into());
            assert_eq!(
                (told.host.as_str(), told.answer.as_str(), told.why.as_deref()),
                ("node1", answer, why)
            );
        }
    }
}
