//! The class of a client's next transaction: what its first messages say, and what the rules make
//! of it.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tidegate_gate::{ClassId, WaitingOrder};
use tidegate_wire::error_response;
use tidegate_wire::frontend::{self, tag};
use tidegate_wire::input::Input;

use crate::client::ClientSlot;
use crate::scheduling::IgnoredChoice;
use crate::scheduling::expected::Fingerprint;
use crate::scheduling::outline::Hint;
use crate::session::ClientSession;
use crate::session_state::look;
use crate::statements;

use super::Worker;

/// So many messages of a batch are looked at for the first statement behind a BEGIN.
const LOOKED_AT: usize = 8;

impl Worker {
    /// Returns the class of the transaction that begins with the first message of `input`, and when
    /// it has to be done.
    pub(super) fn classify(&mut self, slot: ClientSlot, input: &Input<'_>) -> Option<Asked> {
        let account = self.clients[slot].account()?;
        let scheduling = &self.shared.config.scheduling;
        let first = first_statement(input.look_ahead(), &account.session);
        let settings = &account.session.settings;
        let hint = first.as_ref().map(|first| &first.hint);
        let classified = scheduling.classify(&account.identity, settings, hint);
        let order = scheduling.classes.class(classified.class).order;
        let text = first.and_then(|first| first.text);
        let text = text.filter(|_| order == WaitingOrder::ShortestExpected);
        let fingerprint = text.map(|text| Fingerprint(look::fingerprint(text)));
        let expected = fingerprint.and_then(|it| self.expected_times.get(it));
        if let Some(ignored) = classified.ignored {
            self.ignore_choice(slot, ignored);
        }
        if let Some(client) = self.clients[slot].logged_in_mut() {
            (client.class, client.fingerprint) = (classified.class, fingerprint);
        }
        Some(Asked { class: classified.class, within: classified.within, expected })
    }

    /// A client's transaction has ended.
    pub(super) fn learn_time(&mut self, slot: ClientSlot, took: Duration) {
        let client = self.clients.get_mut(slot).and_then(|client| client.logged_in_mut());
        if let Some(fingerprint) = client.and_then(|client| client.fingerprint.take()) {
            self.expected_times.learn(fingerprint, took);
        }
    }

    /// Counts what a client has chosen in vain, and tells it the first time.
    fn ignore_choice(&mut self, slot: ClientSlot, ignored: IgnoredChoice) {
        let (counter, why) = match ignored {
            IgnoredChoice::Unknown => {
                (&self.counters.class_choices_unknown, "there is no such class, or it is no time")
            }
            IgnoredChoice::Forbidden => {
                (&self.counters.class_choices_forbidden, "class_choice does not allow it")
            }
        };
        counter.fetch_add(1, Ordering::Relaxed);
        let Some(client) = self.clients[slot].logged_in_mut() else { return };
        if !std::mem::replace(&mut client.was_told_of_choice, true) {
            let mut out = Vec::new();
            let message = "Tidegate ignores the class or the deadline that the client has chosen";
            error_response::encode_notice(&mut out, message, why);
            self.send_to_client(slot, &out);
        }
    }
}

/// What a transaction asks the gate for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) class: ClassId,
    /// Within which time it has to be done.
    pub(super) within: Option<Duration>,
    /// How long it is expected to take.
    pub(super) expected: Option<Duration>,
}

/// A transaction's first statement.
struct FirstStatement<'a> {
    hint: Hint,
    /// As far as it has arrived; `None` if it is not kept.
    text: Option<&'a [u8]>,
}

/// Returns the first statement that is not a BEGIN, or the BEGIN, if that says something.
fn first_statement<'a>(
    mut input: Input<'a>,
    session: &'a ClientSession,
) -> Option<FirstStatement<'a>> {
    // What the last Parse has named, if it was a BEGIN.
    let mut begin = None;
    for _ in 0..LOOKED_AT {
        let peeked = input.peek().ok()??;
        let payload = peeked.payload();
        let (name, text) = match peeked.tag() {
            tag::QUERY => (None, payload),
            tag::PARSE => {
                let name = frontend::statement_name(payload).ok()?;
                (Some(name), payload.get(name.len() + 1..).unwrap_or_default())
            }
            tag::BIND => {
                let name = frontend::bind_names(payload).ok()?.statement;
                if begin != Some(name) {
                    let hint = session.hint_of(name)?;
                    return Some(FirstStatement { hint, text: session.text_of(name) });
                }
                drop(peeked.take());
                continue;
            }
            tag::FUNCTION_CALL => return None,
            _ => {
                drop(peeked.take());
                continue;
            }
        };
        let text = statements::query_of(text);
        let hint = Hint::of(text);
        if hint != Hint::default() || !look::begins_transaction(text) {
            return Some(FirstStatement { hint, text: Some(text) });
        }
        begin = name;
        drop(peeked.take());
    }
    None
}
