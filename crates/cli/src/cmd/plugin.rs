//! `tidecast plugin`, also called `tidecast_plugin`: HTCondor's file-transfer plugin, implemented in
//! [`tidecast_daemon::plugin`]. Every failure ends with a non-zero exit code, as HTCondor requires.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use serde_json::Map;
use tidecast_daemon::client::Client;
use tidecast_daemon::plugin::{self, Transfer, Wanted};
use tidecast_text::with_causes;

use super::{Context, daemon};
use crate::failure::{Failure, Outcome};
use crate::report::print;
use crate::stop::{Stop, block_on};

/// Transfer caches for HTCondor jobs, as a file-transfer plugin (run by HTCondor; also as `tidecast_plugin`)
///
/// Jobs list caches in transfer_input_files: tidecast://ORIGIN/NAME[@VERSION][/PATH]. The plugin waits until the host's
/// daemon has the cache, and makes a link to it if the job may read the daemon's store, else a copy.
#[derive(clap::Args, Debug)]
#[command(after_help = "Set up:\n  ln -s \"$(command -v tidecast)\" /usr/libexec/condor/tidecast_plugin\n  \
    FILETRANSFER_PLUGINS = $(FILETRANSFER_PLUGINS), /usr/libexec/condor/tidecast_plugin")]
pub(crate) struct Args {
    /// Print the capabilities of this plugin as a ClassAd
    #[arg(long)]
    classad: bool,
    /// Print the caches of this host as attributes of its slots (for STARTD_CRON)
    #[arg(long, conflicts_with = "classad")]
    caches: bool,
    /// Read the transfers from FILE: ClassAds with Url and LocalFileName
    #[arg(long, value_name = "FILE", required_unless_present_any = ["classad", "caches"])]
    infile: Option<PathBuf>,
    /// Write the results to FILE
    #[arg(long, value_name = "FILE", required_unless_present_any = ["classad", "caches"])]
    outfile: Option<PathBuf>,
    /// Upload files of the job: not supported, always fails; use `tidecast cache create`
    #[arg(long)]
    upload: bool,
}

/// Converts HTCondor's command line, whose flags have one dash; `None` if this is not a call of the plugin.
pub(crate) fn command_line(args: impl Iterator<Item = OsString>) -> Option<Vec<OsString>> {
    let mut args = args.peekable();
    let program = args.next()?;
    let is_plugin = Path::new(&program).file_name()? == "tidecast_plugin";
    if !is_plugin && args.next_if(|word| word == "plugin").is_none() {
        return None;
    }
    let flags = args.map(|arg| match arg.to_str() {
        Some(flag @ ("-classad" | "-caches" | "-infile" | "-outfile" | "-upload")) => {
            OsString::from(format!("-{flag}"))
        }
        _ => arg,
    });
    Some([program, "plugin".into()].into_iter().chain(flags).collect())
}

pub(crate) fn run(args: &Args, context: &Context<'_>) -> Outcome {
    if args.classad {
        plugin::SELF.iter().for_each(|line| print(line));
        print(&format!("PluginVersion = \"{}\"", env!("CARGO_PKG_VERSION")));
        return Ok(Map::new());
    }
    if args.caches {
        return caches(context);
    }
    let (Some(infile), Some(outfile)) = (&args.infile, &args.outfile) else {
        return Err(Failure::usage(anyhow!("-infile or -outfile is missing; both are required")));
    };
    let results = match plugin::read(infile, args.upload) {
        Ok(wanted) => transfer_all(wanted, context)?,
        Err(failed) => vec![*failed],
    };
    plugin::write(outfile, &results).with_context(|| format!("cannot write {}", outfile.display()))?;
    match results.into_iter().find_map(|one| one.error) {
        Some(error) => Err(error.into()),
        None => Ok(Map::new()),
    }
}

fn transfer_all(wanted: Vec<Wanted>, context: &Context<'_>) -> Result<Vec<Transfer>, Failure> {
    let socket = match daemon::to_ask(context) {
        Ok(socket) => socket,
        Err(failure) => return Ok(plugin::without_daemon(wanted, &with_causes(failure.error.as_ref()))),
    };
    block_on(1, async {
        let stop = Stop::listen()?;
        Ok(plugin::transfer_all(&socket, wanted, stop.wait()).await)
    })
}

fn caches(context: &Context<'_>) -> Outcome {
    let client = Client::new(&daemon::to_ask(context)?);
    let ad = block_on(1, async { Ok::<_, Failure>(plugin::caches(&client).await) })?;
    print(&ad.context("cannot write the names of caches as a ClassAd")?);
    print("-");
    Ok(Map::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(words: &[&str]) -> Option<String> {
        let line = command_line(words.iter().map(OsString::from))?;
        Some(line.join(&OsString::from(" ")).to_string_lossy().into_owned())
    }

    #[test]
    fn flags_of_one_dash_are_understood_by_either_name_and_of_no_other_command() {
        let said = |line: Option<String>| line.unwrap_or_default();
        assert_eq!(said(line(&["/x/tidecast_plugin", "-classad"])), "/x/tidecast_plugin plugin --classad");
        assert_eq!(said(line(&["tidecast", "plugin", "-infile", "-x"])), "tidecast plugin --infile -x");
        assert_eq!(line(&["tidecast", "copy", "plugin", "-upload"]), None);
        assert_eq!(line(&["tidecast"]), None);
    }
}
