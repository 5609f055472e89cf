//! Receives a field into shared memory, prints each step, and sends a demonstration to itself.
use tidecast::Event;
use tidecast::event::field::receive::News;
use tidecast::field::{Policy, ReceiveOptions, SendOptions, open, receive, send};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options = ReceiveOptions {
        listen: "127.0.0.1:0".parse()?,
        name: format!("example-{}", std::process::id()),
        streams: 2,
        policy: Policy::steps(),
        steps: Some(3),
        ..Default::default()
    };
    let key = options.secret.clone();
    let mut receiving = receive(options);
    let to = vec![receiving.ready_blocking()?.address];
    let options = SendOptions { to, key, streams: 2, rate: Some(100_000_000), ..Default::default() };
    let _sending = send(open(&["demo:nbody:16".into()], None, None)?, options);
    while let Some(event) = receiving.next_blocking() {
        match event {
            Event::News(News::Session(session)) => println!("into {}", session.file.display()),
            Event::News(News::Step(step)) => println!("step {}: {} b/s", step.closed.step, step.rate),
            Event::Warning(warning) => eprintln!("{}", warning.message),
            _ => {}
        }
    }
    println!("{}", receiving.wait_blocking()?.received.steps);
    Ok(())
}
