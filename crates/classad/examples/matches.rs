//! How many matches a second one core makes of a machine and a job: `cargo run --release --example matches`.

use std::hint::black_box;
use std::time::Instant;

use tidecast_classad::{Ad, Context};

const PAIRS: [(&str, &str, &str); 4] = [
    (
        "a slot and a simple job",
        "[Arch = \"X86_64\"; Memory = 2048; Requirements = TARGET.RequestMemory <= MY.Memory]",
        "[RequestMemory = 1024; Requirements = TARGET.Memory >= MY.RequestMemory && TARGET.Arch == \"X86_64\"]",
    ),
    (
        "a cache and a daemon",
        "[CachedServer = true; Name = \"node001\"; TotalDisk = 1000000; Requirements = MY.TotalDisk > TARGET.DiskUsage]",
        "[CacheName = \"blast\"; Owner = \"ada\"; DiskUsage = 5000; Requirements = TARGET.CachedServer]",
    ),
    (
        "a machine and a job",
        "[Arch = \"X86_64\"; OpSys = \"LINUX\"; Memory = 2048; Disk = 100000; Cpus = 8; LoadAvg = 0.1; State = \"Unclaimed\"; \
         Name = \"slot1@node001\"; Requirements = TARGET.RequestMemory <= MY.Memory && LoadAvg < 0.3]",
        "[Owner = \"ada\"; Cmd = \"/bin/blast\"; RequestMemory = 1024; RequestCpus = 1; RequestDisk = 5000; \
         Requirements = TARGET.Arch == \"X86_64\" && TARGET.OpSys == \"LINUX\" && TARGET.Disk >= RequestDisk && \
         TARGET.Cpus >= RequestCpus]",
    ),
    (
        "a regular expression",
        "[Name = \"slot1@node001\"; Requirements = TARGET.RequestMemory > 5]",
        "[RequestMemory = 1024; Requirements = regexp(\"^slot[0-9]+@node\", TARGET.Name)]",
    ),
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let context = Context::at(1_700_000_000);
    for (what, left, right) in PAIRS {
        let (left, right) = (Ad::parse(left)?, Ad::parse(right)?);
        assert!(context.symmetric_match(&left, &right)?);
        let begin = Instant::now();
        let mut count = 0u32;
        while begin.elapsed().as_secs_f64() < 1.0 {
            for _ in 0..1000 {
                black_box(context.symmetric_match(black_box(&left), black_box(&right))?);
            }
            count += 1000;
        }
        let rate = f64::from(count) / begin.elapsed().as_secs_f64();
        println!("{what:24} {rate:>12.0} matches a second");
    }
    Ok(())
}
