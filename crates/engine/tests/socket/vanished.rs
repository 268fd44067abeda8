//! Clients that vanish: what they asked for runs to its end, and they are forgotten.

use std::io::{Read, Write};
use std::sync::atomic::Ordering;

use tidegate_engine::{ListenerOptions, ServerOptions};
use tidegate_gate::Class;

use crate::house::{House, any_port, beside_others, connect, wait_until};
use crate::raw::{request, welcomed};

#[test]
fn transactions_of_a_client_that_vanished_run_to_their_end() {
    let _guard = beside_others();
    let house = House::new(1, ServerOptions::default());
    let listener = house.listen_on(&any_port(), ListenerOptions::default());
    let mut client = connect(&listener);
    client.send("hold", b"", Class::Normal).unwrap();
    client.send("add", b"orphan", Class::Normal).unwrap();
    wait_until("one runs, one waits", || {
        let gate = house.server.gate();
        gate.outstanding == 1 && gate.waiting == 1
    });
    drop(client);
    house.latch.open();
    wait_until("it is done", || house.server.gate().outstanding == 0);
    assert_eq!(house.count(b"orphan"), 1);
    wait_until("it is forgotten", || listener.connections() == 0);
}

#[test]
fn a_client_that_vanishes_in_the_middle_of_an_answer_is_forgotten() {
    let _guard = beside_others();
    let house = House::new(1, ServerOptions::default());
    let listener = house.listen(ListenerOptions { frame_len_max: 8 << 20, ..Default::default() });
    for read in [0, 1, 1_000] {
        let mut stream = welcomed(&listener);
        stream.write_all(&request(1, "long", &(8_000_000_u32).to_le_bytes())).unwrap();
        wait_until("the answer is under way", || {
            // More than the socket holds, so that some of it is kept by the server.
            house.server.gate().outstanding == 0 && house.runs.load(Ordering::SeqCst) > 0
        });
        stream.read_exact(&mut vec![0; read]).unwrap();
        drop(stream);
        wait_until("it is forgotten", || listener.connections() == 0);
        house.runs.store(0, Ordering::SeqCst);
    }
}
