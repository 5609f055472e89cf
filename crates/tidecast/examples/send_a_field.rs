//! Sends a field that this program has in memory, step by step, into the shared memory of a receiver.
use std::{ops::Range, sync::Arc};
use tidecast::field::{ReceiveOptions, SendOptions, Shape, Source, SourceError, Step, Wait, receive, send};

struct Steps(Shape);
struct One(u64);
impl Source for Steps {
    fn shape(&self) -> Shape {
        self.0
    }
    fn name(&self) -> &str {
        "numbers"
    }
    fn steps(&self) -> Option<u64> {
        Some(4)
    }
    fn open(&mut self, step: u64, _: &Wait<'_>) -> Result<Option<Arc<dyn Step>>, SourceError> {
        Ok((step < 4).then(|| Arc::new(One(step)) as Arc<dyn Step>))
    }
}
impl Step for One {
    fn number(&self) -> u64 {
        self.0
    }
    fn read(&self, _planes: Range<usize>, into: &mut [u8]) -> Result<(), SourceError> {
        into.as_chunks_mut().0.fill((self.0 as f32).to_le_bytes());
        Ok(())
    }
}
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (name, listen) = (format!("example-send-{}", std::process::id()), "127.0.0.1:0".parse()?);
    let options = ReceiveOptions { name, listen, streams: 2, steps: Some(4), ..Default::default() };
    let key = options.secret.clone();
    let receiving = receive(options);
    let to = vec![receiving.ready_blocking()?.address];
    let options = SendOptions { to, key, streams: 2, rate: Some(100_000_000), ..Default::default() };
    send(Box::new(Steps(Shape::new(32, 32, 32)?)), options).wait_blocking()?;
    println!("{} steps received", receiving.wait_blocking()?.received.steps);
    Ok(())
}
