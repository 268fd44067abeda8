//! `tidegate top`: a frame for scripts, and a terminal that is as before when it ends.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Stdio};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcgetattr, tcsetwinsize};

use crate::support::{PATIENCE, Proxy, run, text, tidegate};

fn proxy() -> (Proxy, String) {
    let flags = ["--upstream", "postgres://127.0.0.1:1", "--admin-listen", "127.0.0.1:0"];
    let mut proxy = Proxy::start(&flags);
    proxy.address("listening on ");
    let address = proxy.address("metrics on http://").replace("/metrics", "");
    (proxy, address)
}

#[test]
fn one_frame_is_printed_for_scripts() {
    let (_proxy, address) = proxy();
    let output = run(&["top", &address, "--once"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let frame = text(&output.stdout);
    assert_eq!(frame.lines().count(), 24, "{frame}");
    assert!(frame.contains("Tidegate") && frame.contains("127.0.0.1:1"), "{frame}");
    assert!(!frame.contains('\x1b'), "a file is not coloured");
}

#[test]
fn what_does_not_answer_is_named() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let output = run(&["top", &free.to_string(), "--once"]);
    assert_eq!(output.status.code(), Some(1));
    let reason = text(&output.stderr);
    assert!(reason.contains(&free.to_string()) && reason.contains("admin_listen"), "{reason}");
    let (_proxy, address) = proxy();
    let without_terminal = run(&["top", &address]);
    assert!(text(&without_terminal.stderr).contains("--once"));
}

/// A terminal of the test's own: where we are, and where the program is.
fn terminal() -> (File, File) {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let name = ptsname(&ours, Vec::new()).unwrap();
    let theirs = File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
    let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&ours, size).unwrap();
    (ours.into(), theirs)
}

fn until(terminal: &mut File, seen: &mut String, wanted: &str) {
    let mut chunk = [0; 4096];
    while !seen.contains(wanted) {
        let len = terminal.read(&mut chunk).unwrap();
        assert!(len > 0, "the terminal has closed: {seen:?}");
        seen.push_str(&String::from_utf8_lossy(&chunk[..len]));
    }
}

fn ends(mut child: Child) -> bool {
    let start = std::time::Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.success();
        }
        assert!(start.elapsed() < PATIENCE, "it does not end");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

#[test]
fn keys_end_it_and_the_terminal_is_as_before() {
    let (_proxy, address) = proxy();
    for key in ["q", "\x03"] {
        let (mut ours, theirs) = terminal();
        let before = format!("{:?}", tcgetattr(&theirs).unwrap());
        let stream = || Stdio::from(OwnedFd::from(theirs.try_clone().unwrap()));
        let mut command = tidegate(&["top", &address]);
        let child = command.stdin(stream()).stdout(stream()).stderr(stream()).spawn().unwrap();
        let mut seen = String::new();
        until(&mut ours, &mut seen, "q leave");
        assert!(seen.starts_with("\x1b[?1049h\x1b[?25l"), "{seen:?}");
        assert_ne!(format!("{:?}", tcgetattr(&theirs).unwrap()), before);
        // A terminal of another size is filled anew.
        let size = Winsize { ws_row: 12, ws_col: 60, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&ours, size).unwrap();
        seen.clear();
        until(&mut ours, &mut seen, "q leave");
        let frame = seen.rsplit_once("\x1b[H").unwrap().1;
        assert!(frame.matches("\r\n").count() <= 23);
        ours.write_all(key.as_bytes()).unwrap();
        until(&mut ours, &mut seen, "\x1b[?25h\x1b[?1049l");
        assert!(ends(child), "{key:?}");
        assert_eq!(format!("{:?}", tcgetattr(&theirs).unwrap()), before, "{key:?}");
    }
}
