//! Words, names, dates and amounts of what transactions add, in the forms of the generator.

use tidegate_random::SplitMix64;

const LETTERS: &[u8; 26] = b"abcdefghijklmnopqrstuvwxyz";

/// Returns one of several.
pub(super) fn pick(random: &mut SplitMix64, from: &[&'static str]) -> &'static str {
    let end = u32::try_from(from.len()).expect("a few");
    from[random.next_below(end) as usize]
}

pub(super) fn word(random: &mut SplitMix64) -> String {
    let length = 3 + random.next_below(7);
    (0..length).map(|_| char::from(LETTERS[random.next_below(26) as usize])).collect()
}

/// Returns a word that begins with a capital.
pub(super) fn proper(random: &mut SplitMix64) -> String {
    let mut word = word(random);
    word[..1].make_ascii_uppercase();
    word
}

/// Returns so many words and up to twice as many, with spaces between them.
pub(super) fn words(random: &mut SplitMix64, least: u32) -> String {
    let count = least + random.next_below(least + 1);
    let words: Vec<String> = (0..count).map(|_| word(random)).collect();
    words.join(" ")
}

/// Returns a given name and a family name.
pub(super) fn name(random: &mut SplitMix64) -> String {
    format!("{} {}", proper(random), proper(random))
}

pub(super) fn email(random: &mut SplitMix64) -> String {
    format!("mailto:{}@{}{}", proper(random), word(random), pick(random, &[".com", ".edu", ".org"]))
}

pub(super) fn phone(random: &mut SplitMix64) -> String {
    let country = 1 + random.next_below(98);
    let (area, number) = (100 + random.next_below(900), 1_000_000 + random.next_below(90_000_000));
    format!("+{country} ({area}) {number}")
}

/// Returns a date of the year as `MM/DD/YYYY`. No month has more than 28 days here.
pub(super) fn date(random: &mut SplitMix64, year: u32) -> String {
    format!("{:02}/{:02}/{year}", 1 + random.next_below(12), 1 + random.next_below(28))
}

/// Returns a time of day as `HH:MM:SS`.
pub(super) fn time(random: &mut SplitMix64) -> String {
    let second = random.next_below(24 * 60 * 60);
    format!("{:02}:{:02}:{:02}", second / 3_600, second / 60 % 60, second % 60)
}

/// Returns an exponential amount of cents, at least `least`.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "not negative, and an exponential draw is below 40 times its mean"
)]
pub(super) fn cents(random: &mut SplitMix64, least: u64, mean_added: f64) -> u64 {
    least + (random.next_exponential() * mean_added).round() as u64
}

/// Returns cents as an amount with two decimals.
pub fn money(cents: u64) -> String {
    format!("{}.{:02}", cents / 100, cents % 100)
}

/// Returns the cents of an amount with two decimals; `None` if it is none.
pub fn cents_of(amount: &str) -> Option<u64> {
    let (whole, fraction) = amount.split_once('.')?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !is_number(whole) || !is_number(fraction) || fraction.len() != 2 {
        return None;
    }
    whole.parse::<u64>().ok()?.checked_mul(100)?.checked_add(fraction.parse().ok()?)
}
