//! A file that the administrators write: a daemon a line.

use std::path::PathBuf;

use super::entry::{Catalogue, Entry, Visit, failed};

/// Larger ones are a mistake.
const MOST: u64 = 4 << 20;

/// Read at each visit; never written.
pub(super) struct File(pub(super) PathBuf);

impl Catalogue for File {
    fn visit<'a>(&'a self, _: &'a Entry) -> Visit<'a, Vec<String>> {
        Box::pin(async {
            let path = self.0.clone();
            let read = move || -> std::io::Result<String> {
                use std::io::Read as _;
                let mut text = String::new();
                std::fs::File::open(path)?.take(MOST).read_to_string(&mut text)?;
                Ok(text)
            };
            let text = tokio::task::spawn_blocking(read).await.map_err(failed)?.map_err(failed)?;
            Ok(peers(&text))
        })
    }

    fn leave<'a>(&'a self, _: &'a str) -> Visit<'a, ()> {
        Box::pin(async { Ok(()) })
    }
}

/// The lines without comments.
fn peers(text: &str) -> Vec<String> {
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or("").trim());
    lines.filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_empty_lines_name_nobody() {
        let text = "# ours\nhead\n\n node1=10.0.0.1:6980 # the first\n";
        assert_eq!(peers(text), ["head", "node1=10.0.0.1:6980"]);
    }
}
