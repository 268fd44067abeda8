//! `BaseX` makes the same of a document.

use std::io::Write;

use tidegate_subject::basex::{BasexSite, Options, Server};
use tidegate_subject::database::DatabaseError;
use tidegate_subject::embedded_xml::{AuctionSite, GeneratedText, with_indexes};
use tidegate_workload::Failure;
use tidegate_workload::xmark::Xmark;
use tidegate_xml::serialize::XmlWriter;
use tidegate_xml::store::LoadOptions;

use super::{DOCUMENT, Fixture, LOCKS, of_client};

const SEED: u64 = 1_729;

/// A server; `None` where it is not installed.
fn server() -> Option<Server> {
    match Server::start(Options::default()) {
        Ok(server) => Some(server),
        Err(DatabaseError::NotInstalled(what)) => {
            let _ = writeln!(std::io::stderr(), "skipped: {what}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn transactions_read_and_write_the_same_as_on_the_xml_store() {
    println!("seed {SEED}");
    let Some(server) = server() else { return };
    let workload = Xmark::new(0.002, SEED);
    let fixture = Fixture::new(&workload);
    let mut connection = server.connect().unwrap();
    let text = GeneratedText::start(&workload).unwrap();
    BasexSite::load(&mut connection, DOCUMENT, text).unwrap();
    let site = BasexSite::open(&mut connection, DOCUMENT).unwrap();
    for transaction in of_client(&workload, 0, SEED, 300) {
        let (ours, _) = fixture.run(&transaction, LOCKS[4]);
        let theirs = site.answer(&transaction, &mut connection).unwrap();
        assert_eq!(ours, theirs, "{transaction:?}");
    }
    // Both documents in the canonical form, and the other one passes our check.
    let theirs = site.text(&mut connection).unwrap();
    let go_on = |_| std::ops::ControlFlow::Continue(());
    let options = with_indexes(LoadOptions::default()).unwrap();
    fixture.store.load("theirs", options, theirs.as_bytes(), go_on).unwrap();
    let within = fixture.store.begin();
    let document = within.document("theirs").unwrap();
    let theirs = document.write(XmlWriter::canonical(Vec::new(), true)).unwrap();
    assert!(theirs == fixture.text());
    let theirs = AuctionSite::open(&fixture.store, "theirs").unwrap();
    assert_eq!(theirs.expected(), fixture.site.expected());
    let conditions = theirs.check(&fixture.store).unwrap();
    assert!(conditions.iter().all(|condition| condition.violation.is_none()), "{conditions:?}");
    server.stop().unwrap();
}

#[test]
fn what_the_server_refuses_is_told() {
    let Some(server) = server() else { return };
    let mut connection = server.connect().unwrap();
    let Err(Failure::Refused { code, .. }) = connection.query("1 +") else { panic!("it is wrong") };
    assert_eq!(code, "XPST0003");
    assert_eq!(connection.query("1 + 1").unwrap(), "2");
    let stranger = tidegate_subject::basex::BasexConnection::open(server.port(), "admin", "no");
    assert!(matches!(stranger, Err(Failure::Refused { .. })), "{stranger:?}");
    server.stop().unwrap();
}
