//! Texts with emphasis.

use tidegate_random::SplitMix64;

use super::emit::{Emitter, Tag};
use super::words::Vocabulary;
use crate::parse::Event;

/// Fewest words in a text.
const LEAST_WORDS: f64 = 8.0;
/// Mean number of further words; chosen so that a document of factor 1 has about 110 MB.
const MEAN_ADDED_WORDS: f64 = 100.0;
/// Mean number of emphasised passages in a text.
const PASSAGES: f64 = 2.0;
/// Probability that a word inside a passage begins an inner one.
const INNER: f64 = 0.05;
/// Passages inside one another, at most.
const NESTING: u32 = 3;
/// Probability that a sentence ends behind a word.
const SENTENCE_END: f64 = 0.08;

/// Writes the words of one text.
pub(super) struct Prose<'v> {
    pub(super) vocabulary: &'v Vocabulary,
    buffer: String,
}

impl<'v> Prose<'v> {
    pub(super) fn new(vocabulary: &'v Vocabulary) -> Prose<'v> {
        Prose { vocabulary, buffer: String::new() }
    }

    /// Emits an element `text`.
    pub(super) fn text<E, S: FnMut(Event<'_>) -> Result<(), E>>(
        &mut self,
        random: &mut SplitMix64,
        emitter: &mut Emitter<S>,
    ) -> Result<(), E> {
        emitter.open(Tag::Text)?;
        let words = LEAST_WORDS + random.next_exponential() * MEAN_ADDED_WORDS;
        let chance = PASSAGES / (LEAST_WORDS + MEAN_ADDED_WORDS);
        self.words(random, emitter, words, chance, 0)?;
        emitter.close(Tag::Text)
    }

    fn words<E, S: FnMut(Event<'_>) -> Result<(), E>>(
        &mut self,
        random: &mut SplitMix64,
        emitter: &mut Emitter<S>,
        words: f64,
        chance: f64,
        depth: u32,
    ) -> Result<(), E> {
        let mut left = words;
        while left >= 1.0 {
            left -= 1.0;
            if depth < NESTING && random.next_chance(chance) {
                self.pass_on(emitter)?;
                let tag = [Tag::Bold, Tag::Keyword, Tag::Emph][random.next_below(3) as usize];
                emitter.open(tag)?;
                let inner = 1.0 + random.next_exponential() * 2.0;
                self.words(random, emitter, inner, INNER, depth + 1)?;
                emitter.close(tag)?;
                self.buffer.push(' ');
                continue;
            }
            self.buffer.push_str(self.vocabulary.word(random));
            self.buffer.push_str(if random.next_chance(SENTENCE_END) { ". " } else { " " });
        }
        self.pass_on(emitter)
    }

    fn pass_on<E, S: FnMut(Event<'_>) -> Result<(), E>>(
        &mut self,
        emitter: &mut Emitter<S>,
    ) -> Result<(), E> {
        emitter.text(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }
}
