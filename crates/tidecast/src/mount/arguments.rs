//! Options of a mount as the command line of the program that serves it.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use tidecast_mount::Prefetch;
use tidecast_net::Network;
use tidecast_node::{Policy, SwarmOptions};

use super::options::MountOptions;

/// The arguments of `tidecast`; `manifest` is that of a source which has one.
pub(super) fn of(options: &MountOptions, manifest: Option<&Path>, at: &Path) -> Vec<OsString> {
    let mut words = Words(vec!["mount".into()]);
    let serve = &options.serve;
    words.value("mode", serve.mode.name());
    match &serve.prefetch {
        Prefetch::Auto => {}
        Prefetch::None => words.value("prefetch", "none"),
        // So that it has a `/` in it, and is not taken for a keyword of the flag.
        Prefetch::List(list) => words.value("prefetch", std::path::absolute(list).unwrap_or(list.clone())),
    }
    serve.prefetch_exe.iter().for_each(|program| words.value("prefetch-exe", program));
    words.each("record", &serve.record);
    words.each("cache", &serve.cache);
    words.flag("group", serve.group);
    words.each("timeout", &serve.timeout.map(|time| format!("{}ns", time.as_nanos())));
    words.each("fallback", &serve.fallback);
    swarm(&serve.swarm, &mut words);
    words.flag("allow-other", options.allow_other);
    words.each("state-dir", &options.state_dir);
    words.each("threads", &options.threads.map(|threads| threads.to_string()));
    words.0.push("--".into());
    words.0.extend(manifest.map(Into::into));
    words.0.push(at.into());
    words.0
}

fn swarm(options: &SwarmOptions, words: &mut Words) {
    words.value("listen", options.listen.to_string());
    let net = options.net.as_ref().map(|net| match net {
        Network::Interface(name) => name.clone(),
        Network::Prefix(addr, length) => format!("{addr}/{length}"),
    });
    words.each("net", &net);
    options.trackers.iter().for_each(|url| words.value("tracker", url));
    options.peers.iter().for_each(|peer| words.value("peer", peer));
    words.flag("plain", options.plain);
    words.value("policy", if options.policy == Policy::Classic { "classic" } else { "tidecast" });
    let bits = |rate: Option<u64>| rate.map(|rate| format!("{rate}bit"));
    let bytes = |rate: Option<u64>| bits(rate.map(|rate| rate.saturating_mul(8)));
    words.each("link-rate", &bits(options.link_rate));
    words.each("upload-limit", &bytes(options.upload_limit));
    words.each("download-limit", &bytes(options.download_limit));
    words.flag("dht", options.dht);
    words.flag("no-lsd", !options.lsd);
    words.flag("no-web-seeds", !options.web_seeds);
    words.each("ssl-cert", &options.ssl.as_ref().map(|files| &files.cert));
    words.each("ssl-key", &options.ssl.as_ref().map(|files| &files.key));
}

struct Words(Vec<OsString>);

impl Words {
    fn value(&mut self, name: &str, value: impl AsRef<OsStr>) {
        let mut word = OsString::from(format!("--{name}="));
        word.push(value);
        self.0.push(word);
    }

    fn each(&mut self, name: &str, value: &Option<impl AsRef<OsStr>>) {
        value.iter().for_each(|value| self.value(name, value));
    }

    fn flag(&mut self, name: &str, is_set: bool) {
        if is_set {
            self.0.push(format!("--{name}").into());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tidecast_mount::{Mode, ServeOptions};

    use super::*;

    #[test]
    fn every_option_has_its_flag() {
        let swarm = SwarmOptions {
            net: Some(Network::Prefix([10, 0, 0, 0].into(), 8)),
            peers: vec!["a:1".into()],
            upload_limit: Some(1000),
            policy: Policy::Classic,
            plain: true,
            ..SwarmOptions::loopback()
        };
        let serve = ServeOptions {
            mode: Mode::Bulk,
            prefetch: Prefetch::List("/l".into()),
            prefetch_exe: vec!["-x".into()],
            timeout: Some(Duration::from_millis(1500)),
            group: true,
            swarm,
            ..ServeOptions::default()
        };
        let options = MountOptions { serve, allow_other: true, threads: Some(2), ..Default::default() };
        let words = of(&options, Some("m".as_ref()), "-at".as_ref());
        let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
        assert_eq!(
            words.join(" "),
            "mount --mode=bulk --prefetch=/l --prefetch-exe=-x --group --timeout=1500000000ns --listen=127.0.0.1:0 \
             --net=10.0.0.0/8 --peer=a:1 --plain --policy=classic --upload-limit=8000bit --no-lsd --allow-other \
             --threads=2 -- m -at"
        );
    }
}
