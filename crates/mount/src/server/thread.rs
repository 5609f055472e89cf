//! Threads of a server.

use crate::error::Error;

pub(super) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), Error> {
    std::thread::Builder::new().name(name.to_owned()).spawn(run).map_err(Error::Thread)?;
    Ok(())
}
