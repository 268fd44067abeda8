//! A vocabulary of its own: words made of syllables, used with the frequencies of a language.

use std::collections::HashSet;

use tidegate_random::SplitMix64;

/// Number of different words.
const SIZE: usize = 16_000;

const ONSETS: [&str; 24] = [
    "b", "c", "d", "f", "g", "h", "j", "k", "l", "m", "n", "p", "r", "s", "t", "v", "w", "br",
    "cl", "gr", "pl", "st", "th", "tr",
];
const VOWELS: [&str; 9] = ["a", "e", "i", "o", "u", "a", "e", "ai", "ou"];
const CODAS: [&str; 10] = ["", "", "", "", "l", "n", "r", "s", "t", "nd"];

/// Words by rank: the word of rank `k` is drawn with a probability of about 1/k (Zipf's law).
#[derive(Debug, Clone)]
pub(super) struct Vocabulary {
    words: Vec<Box<str>>,
    /// Natural logarithm of the number of words plus one.
    span: f64,
}

impl Vocabulary {
    pub(super) fn new(seed: u64) -> Vocabulary {
        let mut random = SplitMix64::new(seed);
        let mut taken = HashSet::with_capacity(SIZE);
        let mut words: Vec<Box<str>> = Vec::with_capacity(SIZE);
        while words.len() < SIZE {
            // Frequent words are short. A word that exists already is replaced by a longer one.
            let mut word = String::new();
            let most = match words.len() {
                0..60 => 1,
                60..1_500 => 2,
                _ => 3,
            };
            for _ in 0..most {
                syllable(&mut random, &mut word);
            }
            while !taken.insert(word.clone()) {
                syllable(&mut random, &mut word);
            }
            words.push(word.into());
        }
        let span = libm::log(words.len() as f64 + 1.0);
        Vocabulary { words, span }
    }

    /// Returns the next word by Zipf's law: the logarithm of its rank is uniform.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "at least 1 and at most the number of words plus one"
    )]
    pub(super) fn word(&self, random: &mut SplitMix64) -> &str {
        let rank = libm::exp(random.next_draw().value() * self.span) as usize;
        &self.words[rank.clamp(1, self.words.len()) - 1]
    }

    /// Appends a word that begins with a capital letter.
    pub(super) fn push_name(&self, random: &mut SplitMix64, into: &mut String) {
        let word = self.word(random);
        let (first, rest) = word.split_at(1);
        into.extend(first.chars().map(|letter| letter.to_ascii_uppercase()));
        into.push_str(rest);
    }
}

fn syllable(random: &mut SplitMix64, word: &mut String) {
    for parts in [&ONSETS[..], &VOWELS[..], &CODAS[..]] {
        word.push_str(pick(random, parts));
    }
}

/// Returns one of a few choices, all equally likely.
pub(super) fn pick<'c>(random: &mut SplitMix64, choices: &[&'c str]) -> &'c str {
    let count = u32::try_from(choices.len()).unwrap_or(u32::MAX);
    choices[random.next_below(count) as usize]
}
