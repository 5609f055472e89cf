//! `tidecast show MANIFEST|TICKET`: shows the contents of a manifest, or of a ticket.

use anyhow::anyhow;
use serde_json::Map;
use tidecast::Source;

use super::{Context, now};
use crate::failure::{Failure, Outcome};
use crate::report::{Reporter, fields_of};

/// Show the contents of a manifest, or of a ticket
///
/// The secret of a ticket is not shown. On the host that issued it, with the same state directory, the number of nodes that
/// have used it is shown too.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  tidecast show genomes.torrent\n  tidecast show @ticket")]
pub(crate) struct Args {
    /// Manifest (.torrent), or a ticket; @FILE reads the ticket from a file, - from standard input [default:
    /// $TIDECAST_TICKET]
    #[arg(value_name = "MANIFEST|TICKET")]
    manifest: Option<String>,
}

pub(crate) fn run(args: &Args, context: &Context<'_>, reporter: &mut Reporter) -> Outcome {
    let manifest = match tidecast::given_source(args.manifest.as_deref())? {
        Source::File(manifest) => *manifest,
        Source::Ticket(ticket) => {
            let shown = tidecast::show_ticket(&ticket, context.state_dir().ok().as_deref());
            tidecast::ticket_lines(&shown, now()).iter().for_each(|line| reporter.result(line));
            return Ok(fields_of(&shown));
        }
        Source::Magnet(_) => {
            let why = "a magnet link does not contain the manifest; show the manifest (.torrent) itself";
            return Err(Failure::usage(anyhow!(why)));
        }
    };
    if reporter.is_json() {
        // One object, which has the warnings.
        return Ok(fields_of(&tidecast::show(&manifest)));
    }
    // Line by line: a small manifest may have paths that are long together.
    manifest.warnings().iter().for_each(|warning| reporter.warning(&warning.to_string()));
    tidecast::manifest_lines(&manifest).for_each(|line| reporter.result(&line));
    Ok(Map::new())
}
