//! What the URLs of all databases have in common: `user[:password]@host[:port]` before the path,
//! and percent signs.

use percent_encoding::percent_decode_str;

/// Who logs in, and where.
pub(crate) struct Authority {
    pub(crate) user: String,
    pub(crate) password: Option<String>,
    /// Empty where there is none.
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl Authority {
    /// Reads what stands before the path, where a port may be left out; what is wrong is said in
    /// words.
    pub(crate) fn read(text: &str, usual_port: u16) -> Result<Self, &'static str> {
        let (login, place) = text.rsplit_once('@').ok_or("there is no user")?;
        let (user, password) = match login.split_once(':') {
            Some((user, password)) => (decode(user)?, Some(decode(password)?)),
            None => (decode(login)?, None),
        };
        if user.is_empty() {
            return Err("there is no user");
        }
        let (host, port) = host_and_port(place)?;
        let port = match port {
            Some(port) => port.parse().map_err(|_| "the port is not one")?,
            None => usual_port,
        };
        Ok(Authority { user, password, host: decode(host)?, port })
    }
}

/// The host, and the text of the port. The colons of an IPv6 address stand inside brackets.
fn host_and_port(place: &str) -> Result<(&str, Option<&str>), &'static str> {
    const HALF: &str = "a bracket of the host stands alone";
    if let Some(rest) = place.strip_prefix('[') {
        let (host, rest) = rest.split_once(']').ok_or(HALF)?;
        return match rest.strip_prefix(':') {
            Some(port) => Ok((host, Some(port))),
            None if rest.is_empty() => Ok((host, None)),
            None => Err("the port is not one"),
        };
    }
    if place.contains(['[', ']']) {
        return Err(HALF);
    }
    Ok(place.rsplit_once(':').map_or((place, None), |(host, port)| (host, Some(port))))
}

/// A part of a URL without its percent signs.
pub(crate) fn decode(text: &str) -> Result<String, &'static str> {
    for (place, _) in text.match_indices('%') {
        let digits = text.as_bytes().get(place + 1..place + 3);
        let digits = digits.ok_or("a percent sign stands alone")?;
        if !digits.iter().all(u8::is_ascii_hexdigit) {
            return Err("a percent sign is not followed by two hex digits");
        }
    }
    match percent_decode_str(text).decode_utf8() {
        // A zero would end the text early on its way to the server.
        Ok(text) if !text.contains('\0') => Ok(text.into_owned()),
        Ok(_) => Err("it has a zero byte once decoded"),
        Err(_) => Err("it is not UTF-8 once decoded"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_is_found() {
        for (text, expected) in [
            ("ann:p%40ss%3a@db:6432", ("ann", Some("p@ss:"), "db", 6432)),
            ("a%40b@h", ("a@b", None, "h", 7)),
            ("ann:@[::1]", ("ann", Some(""), "::1", 7)),
            ("ann@[::1]:8", ("ann", None, "::1", 8)),
            ("ann@%2Frun%2Fpg:8", ("ann", None, "/run/pg", 8)),
            ("ann@", ("ann", None, "", 7)),
        ] {
            let Authority { user, password, host, port } = Authority::read(text, 7).unwrap();
            assert_eq!((user.as_str(), password.as_deref(), host.as_str(), port), expected);
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, wrong) in [
            ("h:1", "no user"),
            ("@h", "no user"),
            (":secret@h", "no user"),
            ("a@h:99999", "port"),
            ("a@[::1]8", "port"),
            ("a@[::1", "bracket"),
            ("a@::1]:8", "bracket"),
            ("a%4x@h", "hex digits"),
            ("a@h%", "alone"),
            ("a:%ff@h", "UTF-8"),
            ("a%00b@h", "zero"),
            ("a@h%00", "zero"),
        ] {
            let error = Authority::read(text, 7).err().unwrap();
            assert!(error.contains(wrong), "{text}: {error}");
        }
    }
}
