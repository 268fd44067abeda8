//! Measures how fast documents are loaded, with how much memory, and how large they become.
//!
//! ```text
//! xmark --factor 1 --seed 1 > site.xml
//! load_speed site.xml --rounds 5 --buffer-mib 32
//! load_speed site.xml --rounds 5 --index "name" --index "cas text"
//! ```
//!
//! A store of its own is made for each round in a directory beside the text, and removed.

use std::error::Error;
use std::fs::{self, File};
use std::io::{self, BufReader, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tidegate_engine::{Store, StoreOptions};
use tidegate_xml::parse::XmlReader;
use tidegate_xml::store::{InnerNodes, LoadOptions, XmlStore};

const USAGE: &str = "\
load_speed TEXT [--rounds N] [--buffer-mib N] [--fill PERCENT] [--virtual] [--index DEFINITION]...";

struct Arguments {
    text: PathBuf,
    rounds: u32,
    buffer_bytes: usize,
    load: LoadOptions,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse()?;
    let bytes = fs::metadata(&arguments.text)?.len();
    let mut output = io::stdout().lock();
    writeln!(output, "text: {bytes} bytes; {:?}", arguments.load)?;
    let (mut parsed, mut loaded) = (Vec::new(), Vec::new());
    for _ in 0..arguments.rounds {
        parsed.push(rate(bytes, parse(&arguments.text)?));
        loaded.push(rate(bytes, load(&arguments, bytes, &mut output)?));
    }
    for (work, mut rates) in [("parse alone", parsed), ("load durably", loaded)] {
        rates.sort_by(f64::total_cmp);
        let median = rates[rates.len() / 2];
        let (least, most) = (rates[0], rates[rates.len() - 1]);
        writeln!(output, "{work}: {median:.1} MB/s ({least:.1} to {most:.1})")?;
    }
    if let Some(peak) = peak_memory()? {
        let beside = peak.saturating_sub(arguments.buffer_bytes as u64);
        let buffer = arguments.buffer_bytes as f64;
        writeln!(
            output,
            "peak resident memory: {:.1} MiB, {:.1} MiB beside the buffer of {:.0} MiB",
            mib(peak as f64),
            mib(beside as f64),
            mib(buffer)
        )?;
    }
    Ok(())
}

impl Arguments {
    fn parse() -> Result<Arguments, Box<dyn Error>> {
        let (mut text, mut rounds, mut buffer_mib) = (None, 1, 32);
        let mut load = LoadOptions::default();
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
            match argument.as_str() {
                "--rounds" => rounds = value()?.parse()?,
                "--buffer-mib" => buffer_mib = value()?.parse()?,
                "--fill" => load.document.fill_percent = value()?.parse()?,
                "--virtual" => load.document.inner_nodes = InnerNodes::Virtual,
                "--index" => {
                    let definition = value()?;
                    load = load.index(&definition, definition.parse()?);
                }
                _ if argument.starts_with('-') => return Err(USAGE.into()),
                _ => text = Some(PathBuf::from(argument)),
            }
        }
        let text = text.ok_or(USAGE)?;
        if rounds == 0 {
            return Err("at least one round".into());
        }
        load.input_bytes = Some(fs::metadata(&text)?.len());
        Ok(Arguments { text, rounds, buffer_bytes: buffer_mib << 20, load })
    }
}

fn parse(text: &Path) -> Result<Duration, Box<dyn Error>> {
    let start = Instant::now();
    let mut reader = XmlReader::new(BufReader::new(File::open(text)?));
    while reader.next_event()?.is_some() {}
    Ok(start.elapsed())
}

/// Loads the text into a new store.
fn load(
    arguments: &Arguments,
    bytes: u64,
    output: &mut impl Write,
) -> Result<Duration, Box<dyn Error>> {
    let directory = arguments.text.with_extension("store");
    if directory.exists() {
        fs::remove_dir_all(&directory)?;
    }
    let options = StoreOptions::default()
        .buffer_bytes(arguments.buffer_bytes)
        .buffer_bytes_max(arguments.buffer_bytes);
    let store = XmlStore::on(Store::open_or_create(&directory, &options)?)?;
    let start = Instant::now();
    let input = BufReader::new(File::open(&arguments.text)?);
    let go_on = |_| ControlFlow::Continue(());
    let loaded = store.load("document", arguments.load.clone(), input, go_on)?;
    let taken = start.elapsed();
    writeln!(
        output,
        "loaded {} nodes and {} entries of indexes in {:.2} s, {:.1} MB/s",
        loaded.nodes,
        loaded.entries,
        taken.as_secs_f64(),
        rate(bytes, taken)
    )?;
    sizes(&store, bytes, output)?;
    store.close()?;
    fs::remove_dir_all(&directory)?;
    Ok(taken)
}

/// Writes what each tree takes.
fn sizes(store: &XmlStore, text: u64, output: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let page_bytes = store.engine().page_size().bytes() as u64;
    for name in store.engine().trees() {
        let tree = store.engine().tree(&name).ok_or("a tree that was listed is there")?;
        let fills = tree.fills()?;
        if fills.len() < 100 {
            continue;
        }
        let fill = fills.iter().map(|leaf| leaf.fill).sum::<f64>() / fills.len() as f64;
        let leaves = fills.len() as u64 * page_bytes;
        writeln!(
            output,
            "  {name}: leaves of {leaves} bytes, {:.3} times the text, {:.1} % full",
            leaves as f64 / text as f64,
            fill * 100.0
        )?;
    }
    Ok(())
}

fn rate(bytes: u64, taken: Duration) -> f64 {
    bytes as f64 / taken.as_secs_f64() / 1e6
}

fn mib(bytes: f64) -> f64 {
    bytes / f64::from(1 << 20)
}

/// Returns the most memory that the process has had, in bytes, where the system tells.
fn peak_memory() -> Result<Option<u64>, Box<dyn Error>> {
    let Ok(status) = fs::read_to_string("/proc/self/status") else { return Ok(None) };
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
    Ok(kib.map(|kib| kib.trim().parse::<u64>()).transpose()?.map(|kib| kib << 10))
}
