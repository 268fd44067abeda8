//! The document, made at most once a second, and only while somebody wants it.
//!
//! Event loops are asked by a message and answer when they come to it; the sampler does not wait
//! for them. Those that have not answered within [`ANSWER_TIME`] are left out.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use mio::Waker;

use crate::inventory::{BusyClients, BusyInquiry};
use crate::mailbox::Message;
use crate::metrics::MetricsSource;
use crate::shared::{InForce, Shared};
use crate::status::{BusyReport, Composer, Cursor, LISTED_MAX, Status, add_tracked};

/// Time between two documents.
const INTERVAL: Duration = Duration::from_secs(1);

/// Event loops have so long to answer.
const ANSWER_TIME: Duration = Duration::from_millis(250);

/// The document of a moment in the forms in which it is sent.
pub(super) struct Sample {
    status: Status,
    cursors: Option<Vec<Cursor>>,
    shared: Arc<Shared>,
    at: Instant,
    all: Option<String>,
    new_part: Option<String>,
}

impl Sample {
    /// Returns the whole document.
    pub(super) fn all(&mut self) -> &str {
        let Sample { status, shared, at, all, .. } = self;
        all.get_or_insert_with(|| {
            add_tracked(status, shared, None, *at);
            text(status)
        })
    }

    /// Returns the document with what is new in it since the last one.
    pub(super) fn new_part(&mut self) -> &str {
        let Sample { status, shared, at, cursors, new_part, .. } = self;
        new_part.get_or_insert_with(|| {
            add_tracked(status, shared, cursors.as_deref(), *at);
            text(status)
        })
    }

    /// Returns up to where its history and decisions go.
    fn cursors(&mut self) -> Vec<Cursor> {
        add_tracked(&mut self.status, &self.shared, Some(&[]), self.at)
    }
}

fn text(status: &Status) -> String {
    serde_json::to_string(status).unwrap_or_else(|error| {
        debug_assert!(false, "a document of numbers and texts: {error}");
        "{}".to_owned()
    })
}

/// Event loops are being asked.
struct Asking {
    since: Instant,
    /// The configuration in force then.
    shared: Arc<Shared>,
    answers: Receiver<Vec<BusyClients>>,
    busy: BusyReport,
}

/// Makes documents.
pub(super) struct Sampler {
    in_force: Arc<InForce>,
    composer: Composer,
    waker: Arc<Waker>,
    asking: Option<Asking>,
    /// When the last document was made.
    last: Option<Instant>,
    cursors: Option<Vec<Cursor>>,
    sample: Option<Sample>,
}

impl Sampler {
    pub(super) fn new(
        in_force: Arc<InForce>,
        metrics: Arc<MetricsSource>,
        waker: Arc<Waker>,
    ) -> Sampler {
        let composer = Composer::new(metrics);
        Sampler { in_force, composer, waker, asking: None, last: None, cursors: None, sample: None }
    }

    /// Returns when something is to be done, if something is.
    pub(super) fn next(&self, is_wanted: bool) -> Option<Instant> {
        match &self.asking {
            Some(asking) => Some(asking.since + ANSWER_TIME),
            None => is_wanted.then(|| self.last.map_or_else(Instant::now, |at| at + INTERVAL)),
        }
    }

    /// Goes on. Returns a new document when there is one; [`Sampler::handed_out`] follows.
    pub(super) fn advance(&mut self, is_wanted: bool, now: Instant) -> Option<&mut Sample> {
        let is_due = self.last.is_none_or(|at| now >= at + INTERVAL);
        if self.asking.is_none() && is_wanted && is_due {
            self.ask(now);
        }
        let asking = self.asking.as_mut()?;
        while let Ok(busy) = asking.answers.try_recv() {
            asking.busy.add(busy);
            asking.busy.missing = asking.busy.missing.saturating_sub(1);
        }
        if asking.busy.missing > 0 && now < asking.since + ANSWER_TIME {
            return None;
        }
        let Asking { busy, shared, .. } = self.asking.take()?;
        self.last = Some(now);
        self.sample = Some(Sample {
            status: self.composer.compose(&shared, &busy, now),
            cursors: self.cursors.take(),
            shared,
            at: now,
            all: None,
            new_part: None,
        });
        self.sample.as_mut()
    }

    /// Notes that the document has been given to all who want it.
    pub(super) fn handed_out(&mut self) {
        self.cursors = self.sample.take().map(|mut sample| sample.cursors());
    }

    fn ask(&mut self, now: Instant) {
        let (to, answers) = mpsc::channel();
        let inquiry = BusyInquiry { to, waker: Arc::clone(&self.waker), most: LISTED_MAX };
        let shared = self.in_force.get();
        for mailbox in &shared.mailboxes {
            mailbox.post(Message::ReportBusy(inquiry.clone()));
        }
        let busy = BusyReport { missing: shared.mailboxes.len(), ..BusyReport::default() };
        self.asking = Some(Asking { since: now, answers, busy, shared });
    }
}
