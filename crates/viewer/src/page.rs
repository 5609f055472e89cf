//! The page, built from `web/` and embedded.

include!(concat!(env!("OUT_DIR"), "/files.rs"));

/// Nothing from elsewhere.
pub(crate) const POLICY: &str = "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; media-src blob:; frame-ancestors 'none'";

/// Shown when the program was built without the page.
const ABSENT: &str = "<!doctype html><meta charset=utf-8><title>tidecast field view</title>\
<p>This program was built without its page. Run <code>scripts/web</code> in the source tree (Node 18 or newer), then build again.";

/// Shown if the token is missing.
pub(crate) const UNAUTHORIZED: &str = "<!doctype html><meta charset=utf-8><title>tidecast field view</title>\
<p>403: missing or wrong token.<p>Open the URL that <code>tidecast field view</code> printed, including <code>?token=</code>.";

/// Kind and content of a file of the page.
pub(crate) fn find(path: &str) -> Option<(&'static str, &'static [u8])> {
    let name = if path == "/" { "index.html" } else { path.trim_start_matches('/') };
    let found = FILES.iter().find(|(file, _)| *file == name).map(|(_, content)| *content);
    let content = found.or_else(|| (name == "index.html").then_some(ABSENT.as_bytes()))?;
    let kind = match name.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "application/octet-stream",
    };
    Some((kind, content))
}

/// Whether the page is in this program.
pub(crate) fn is_built() -> bool {
    !FILES.is_empty()
}
