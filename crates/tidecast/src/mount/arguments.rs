//! Options of a mount as the command line of the program that serves it.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use tidecast_mount::{Prefetch, ServeOptions};
use tidecast_net::Network;
use tidecast_node::{Policy, SwarmOptions};

use super::options::{MountOptions, RunOptions};

/// The arguments of `tidecast`; `manifest` is that of a source which has one.
pub(super) fn of(options: &MountOptions, manifest: Option<&Path>, at: &Path) -> Vec<OsString> {
    let mut words = Words(vec!["mount".into()]);
    tree(&options.serve, &mut words);
    words.flag("allow-other", options.allow_other);
    words.each("state-dir", &options.state_dir);
    words.each("threads", &options.threads.map(|threads| threads.to_string()));
    words.0.push("--".into());
    words.0.extend(manifest.map(Into::into));
    words.0.push(at.into());
    words.0
}

/// The arguments of `tidecast run`, whose source is `source`.
pub(super) fn of_run(options: &RunOptions, source: &OsStr, command: &[OsString]) -> Vec<OsString> {
    let mut words = Words(vec!["run".into()]);
    tree(&options.serve, &mut words);
    words.path("at", &options.at);
    words.path("state-dir", &options.state_dir);
    words.0.extend([source.to_owned(), "--".into()]);
    words.0.extend_from_slice(command);
    words.0
}

/// Flags of the tree, the same for both. Paths are absolute, as the program may run in another directory.
fn tree(serve: &ServeOptions, words: &mut Words) {
    words.value("mode", serve.mode.name());
    match &serve.prefetch {
        Prefetch::Auto => {}
        Prefetch::None => words.value("prefetch", "none"),
        // So that it has a `/` in it, and is not taken for a keyword of the flag.
        Prefetch::List(list) => words.value("prefetch", std::path::absolute(list).unwrap_or(list.clone())),
    }
    serve.prefetch_exe.iter().for_each(|program| words.value("prefetch-exe", program));
    words.path("record", &serve.record);
    words.path("cache", &serve.cache);
    words.flag("group", serve.group);
    words.each("timeout", &serve.timeout.map(|time| format!("{}ns", time.as_nanos())));
    words.path("fallback", &serve.fallback);
    swarm(&serve.swarm, words);
}

fn swarm(options: &SwarmOptions, words: &mut Words) {
    words.value("listen", options.listen.to_string());
    words.each("net", &options.net.as_ref().map(Network::to_string));
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

    fn path(&mut self, name: &str, path: &Option<PathBuf>) {
        self.each(name, &path.as_ref().map(|path| std::path::absolute(path).unwrap_or(path.clone())));
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

    use tidecast_mount::Mode;

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

    #[test]
    fn a_command_comes_last() {
        let serve = ServeOptions { record: Some("/r".into()), ..ServeOptions::default() };
        let options = RunOptions { serve, at: Some("/at".into()), ..RunOptions::default() };
        let words = of_run(&options, "m".as_ref(), &["c".into(), "--at".into()]);
        let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
        let words = words.join(" ");
        assert!(words.starts_with("run --mode=hybrid --record=/r "), "{words}");
        assert!(words.ends_with(" --at=/at m -- c --at"), "{words}");
    }
}
