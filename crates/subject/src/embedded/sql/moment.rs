//! Moments: microseconds since 1970, in Greenwich.

use std::time::UNIX_EPOCH;

use tidegate_runtime::clock;

/// Now.
pub(super) fn now() -> i64 {
    // A clock that was never set may be before 1970.
    let since = clock::date().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).expect("the clock is before the year 294,000")
}

/// The moment in a text `2026-01-31` or `2026-01-31 23:59:59`, with up to six digits of a second
/// behind a point; `None` when it is none.
pub(super) fn read(text: &str) -> Option<i64> {
    let (date, time) = text.trim().split_once([' ', 'T']).unwrap_or((text.trim(), "0:0:0"));
    let mut date = date.splitn(3, '-').map(digits);
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let mut time = time.splitn(3, ':').map(digits);
    let (hour, minute, second) = (time.next()??, time.next()??, time.next()??);
    let is_possible = (1..=9999).contains(&year)
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && hour < 24
        && minute < 60
        && second < 60
        && fraction.len() <= 6;
    let micros = digits(&format!("{fraction:0<6}"))?;
    let seconds = ((days(year, month, day) * 24 + hour) * 60 + minute) * 60 + second;
    is_possible.then_some(seconds * 1_000_000 + micros)
}

fn digits(text: &str) -> Option<i64> {
    let is_number = (1..=6).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok())?
}

/// Days from 1970-01-01 to a date of the Gregorian calendar. Years are counted from March, so that
/// the day that some have more is their last: 153 days are five months from there.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    year * 365 + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1 - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_counted_from_1970() {
        for (text, seconds) in [
            ("1970-01-01", 0),
            ("1969-12-31 23:59:59", -1),
            ("2000-02-29 00:00:00", 951_782_400),
            ("2000-03-01T00:00:00", 951_868_800),
            ("2026-11-21 12:00:00", 1_795_262_400),
        ] {
            assert_eq!(read(text), Some(seconds * 1_000_000), "{text}");
        }
        assert_eq!(read("1970-01-01 00:00:00.25"), Some(250_000));
        for wrong in ["", "1970", "1970-13-01", "1970-01-01 24:00:00", "x-y-z", "1970-01-01 1:2"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
