//! `tidecast-wan`: a long-distance link between two network namespaces. The library describes the model.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use tidecast_wan::line::{Config, Counters};
use tidecast_wan::pump::Pump;
use tidecast_wan::tun;

/// A long-distance link in user space between two network namespaces.
///
/// Creates a TUN (or TAP) device in each, and carries packets between them until it is ended; the devices are
/// removed with it. The caller sets them up and assigns their addresses.
#[derive(Parser, Debug)]
#[command(version)]
struct Args {
    /// Names of the two ends
    #[arg(num_args = 2, value_name = "NAMESPACE:DEVICE", required = true)]
    ends: Vec<String>,
    /// Create TAP devices (Ethernet frames, for bridges) instead of TUN (IP packets)
    #[arg(long)]
    tap: bool,
    /// Limit the rate, in bits per second and direction; 0: no limit
    #[arg(long, default_value_t = 0)]
    rate: u64,
    /// Limit the queue at each end, in bytes; further packets are dropped
    #[arg(long, default_value_t = 64 << 20)]
    queue: u64,
    /// Delay packets by this many microseconds in each direction
    #[arg(long, default_value_t = 0)]
    delay_us: u64,
    /// Lose packets with this probability, from 0 to below 1
    #[arg(long, default_value_t = 0.0, value_parser = chance)]
    loss: f64,
    /// Duplicate packets with this probability
    #[arg(long, default_value_t = 0.0, value_parser = chance)]
    dup: f64,
    /// Hold packets back with this probability, so that later ones overtake them
    #[arg(long, default_value_t = 0.0, value_parser = chance)]
    reorder: f64,
    /// Seed of the random numbers
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Read changes of the settings from standard input, a line each: `rate=8000000 delay-us=5000 loss=0.01`
    #[arg(long)]
    stdin: bool,
    /// Print the counters of both directions as a line of JSON, this many times a second
    #[arg(long, value_name = "HERTZ")]
    stats: Option<f64>,
}

fn chance(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|p| (0.0..1.0).contains(p))
        .ok_or_else(|| "expected a value from 0 to below 1".into())
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("tidecast-wan: {e}");
            ExitCode::from(1)
        }
    }
}

fn run(args: &Args) -> Result<(), Box<dyn std::error::Error>> {
    let [left, right] = args.ends.as_slice() else { return Err("expected two ends".into()) };
    let (a, b) = (tun::open(left, args.tap)?, tun::open(right, args.tap)?);
    let config = Config {
        rate: args.rate,
        queue: args.queue,
        delay: Duration::from_micros(args.delay_us),
        loss: args.loss,
        dup: args.dup,
        reorder: args.reorder,
    };
    let there = Pump::start(a.try_clone()?, b.try_clone()?, config, args.seed, args.tap)?;
    let back = Pump::start(b, a, config, !args.seed, args.tap)?;
    if args.stdin {
        let pumps = [there.clone(), back.clone()];
        std::thread::spawn(move || obey(&pumps, config));
    }
    loop {
        match args.stats {
            Some(hertz) if hertz > 0.0 => {
                std::thread::sleep(Duration::from_secs_f64((1.0 / hertz).min(3600.0)))
            }
            _ => loop {
                std::thread::park();
            },
        }
        writeln!(
            std::io::stdout(),
            "{{\"fwd\":{},\"back\":{}}}",
            json(there.counters()),
            json(back.counters())
        )?;
    }
}

/// Applies the changes on standard input to both directions.
fn obey(pumps: &[Pump], mut config: Config) {
    for line in std::io::stdin().lines().map_while(Result::ok) {
        match line.split_whitespace().try_for_each(|word| set(&mut config, word)) {
            Ok(()) => pumps.iter().for_each(|pump| pump.change(config)),
            Err(e) => eprintln!("tidecast-wan: {e}"),
        }
    }
}

fn set(config: &mut Config, word: &str) -> Result<(), String> {
    let not = |what: &str| format!("{word}: expected {what}");
    let (name, value) = word.split_once('=').ok_or_else(|| not("NAME=VALUE"))?;
    let number = || value.parse::<u64>().map_err(|_| not("a number"));
    match name {
        "rate" => config.rate = number()?,
        "queue" => config.queue = number()?,
        "delay-us" => config.delay = Duration::from_micros(number()?),
        "loss" => config.loss = chance(value)?,
        _ => return Err(not("rate, queue, delay-us or loss")),
    }
    Ok(())
}

fn json(c: Counters) -> String {
    format!(
        "{{\"packets\":{},\"lost\":{},\"dropped\":{},\"duplicated\":{},\"reordered\":{}}}",
        c.packets, c.lost, c.dropped, c.duplicated, c.reordered
    )
}
