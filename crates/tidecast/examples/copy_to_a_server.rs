//! Copies a directory to a copy server, and shows how far it is.

use std::error::Error;
use std::fs;

use tidecast::{Copy, Event, ServeCopiesOptions, copy, serve_copies};

fn main() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let (data, root) = (dir.path().join("data"), dir.path().join("root"));
    fs::create_dir_all(&root)?;
    fs::create_dir(&data)?;
    (0..100).try_for_each(|n| fs::write(data.join(n.to_string()), vec![n; 10_000]))?;
    // On the host that has room; `as_root` allows root to run this example.
    let state_dir = Some(dir.path().join("state"));
    let options = ServeCopiesOptions {
        listen: ([127, 0, 0, 1], 0).into(),
        as_root: true,
        state_dir,
        ..Default::default()
    };
    let serving = serve_copies(&root, options);
    let url = serving.ready_blocking()?.url;

    // On the host that has the data:
    let mut copying = copy(Copy::new(&[data.into()], url.as_ref())?);
    while let Some(event) = copying.next_blocking() {
        match event {
            Event::Progress(now) => println!("{} of {} bytes", now.bytes, now.total),
            Event::Warning(warning) => eprintln!("{}", warning.message),
            _ => {}
        }
    }
    println!("{} files", copying.wait_blocking()?.files_copied);
    assert_eq!(fs::read_dir(root.join("data"))?.count(), 100);
    Ok(())
}
