//! Who is at the other end of a Unix-domain socket: the name of a user of the operating system.
//!
//! The system tells the user's number; its name comes from the name service, which may ask a
//! directory on another machine. So a thread does that, and the event loop gets a message.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};

use crate::client::Requester;
use crate::mailbox::{Mailbox, Message};

/// A user's number, and the client whose socket has it.
type Inquiry = (u32, Requester);

/// Finds the names of users of the operating system. The thread ends when this is dropped.
#[derive(Debug)]
pub(crate) struct SystemUsers(Sender<Inquiry>);

impl SystemUsers {
    /// Starts the thread, which posts its answers to these event loops.
    pub(crate) fn start(mailboxes: Vec<Arc<Mailbox>>) -> std::io::Result<SystemUsers> {
        let (sender, inquiries) = mpsc::channel();
        std::thread::Builder::new()
            .name("tidegate-names".into())
            .spawn(move || answer(&inquiries, &mailboxes))?;
        Ok(SystemUsers(sender))
    }

    /// Asks for the name of the user with this number.
    pub(crate) fn request(&self, number: u32, requester: Requester) {
        if self.0.send((number, requester)).is_err() {
            tracing::error!("the thread that finds names of users has ended");
        }
    }
}

fn answer(inquiries: &Receiver<Inquiry>, mailboxes: &[Arc<Mailbox>]) {
    for (number, Requester { worker, client }) in inquiries {
        let user = uzers::get_user_by_uid(number);
        let name = user.and_then(|user| user.name().to_str().map(str::to_owned));
        mailboxes[worker.0].post(Message::SystemUser { client, name });
    }
}
