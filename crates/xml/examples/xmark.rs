//! Writes an `XMark` document to standard output, or measures how fast text is generated and read.
//!
//! ```text
//! xmark --factor 0.1 --seed 1 > site.xml
//! xmark --factor 1 --measure
//! ```

use std::error::Error;
use std::io::{self, Write};
use std::time::Instant;

use quick_xml::events::Event as Markup;
use tidegate_xml::parse::XmlReader;
use tidegate_xml::serialize::XmlWriter;
use tidegate_xml::xmark::{PersonCount, XmarkGenerator, XmarkOptions};

/// Times that each measurement is repeated; the fastest counts.
const REPETITIONS: u32 = 5;

fn main() -> Result<(), Box<dyn Error>> {
    let mut options = XmarkOptions { factor: 0.01, seed: 1, persons: PersonCount::default() };
    let mut measure_only = false;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
        match argument.as_str() {
            "--factor" => options.factor = value()?.parse()?,
            "--seed" => options.seed = value()?.parse()?,
            "--study-persons" => options.persons = PersonCount::Study,
            "--measure" => measure_only = true,
            _ => {
                let flags = "--factor F, --seed N, --study-persons or --measure";
                return Err(format!("{argument} is unknown; use {flags}").into());
            }
        }
    }
    let generator = XmarkGenerator::new(options)?;
    if measure_only {
        return measure(&generator);
    }
    generator.write(io::stdout().lock())?.flush()?;
    Ok(())
}

fn measure(generator: &XmarkGenerator) -> Result<(), Box<dyn Error>> {
    let document = generator.write(Vec::new())?;
    let mut output = io::stdout().lock();
    writeln!(output, "document: {} bytes, {:?}", document.len(), generator.cardinalities())?;
    let mut report = |name: &str, work: &mut dyn FnMut() -> Result<u64, Box<dyn Error>>| {
        let mut best = f64::INFINITY;
        let mut events = 0;
        for _ in 0..REPETITIONS {
            let start = Instant::now();
            events = work()?;
            best = best.min(start.elapsed().as_secs_f64());
        }
        let rate = document.len() as f64 / best / 1e6;
        writeln!(output, "{name}: {best:.3} s, {rate:.0} MB/s, {events} events")?;
        Ok::<(), Box<dyn Error>>(())
    };
    report("generate text", &mut || {
        generator.write(io::sink())?;
        Ok(0)
    })?;
    report("generate events", &mut || {
        let mut events = 0;
        generator.events(|_| {
            events += 1;
            Ok::<(), Box<dyn Error>>(())
        })?;
        Ok(events)
    })?;
    report("parse", &mut || {
        let mut reader = XmlReader::new(&document[..]);
        let mut events = 0;
        while reader.next_event()?.is_some() {
            events += 1;
        }
        Ok(events)
    })?;
    report("parse and write", &mut || {
        let mut reader = XmlReader::new(&document[..]);
        let mut writer = XmlWriter::new(io::sink());
        while let Some(event) = reader.next_event()? {
            writer.write(event)?;
        }
        writer.finish()?;
        Ok(0)
    })?;
    report("quick-xml alone, from a buffered reader", &mut || {
        let mut reader = quick_xml::Reader::from_reader(&document[..]);
        let mut buffer = Vec::new();
        let mut events = 0;
        while !matches!(reader.read_event_into(&mut buffer)?, Markup::Eof) {
            events += 1;
            buffer.clear();
        }
        Ok(events)
    })
}
