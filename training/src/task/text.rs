//! A made-up language: text with structure over long distances, from a seed.
//!
//! A lexicon of made-up words is drawn from a seed. A paragraph has a topic, which decides the words that are
//! frequent in it, and a hero, whose name comes again and again. A sentence is subject, verb, object, in which
//! the verb ends as its subject does; it may have an aside in brackets, which may have another within it, and
//! then says the verb's stem once more after the brackets. So the next character depends on what was said
//! tens of characters ago, while much remains that no model can guess: which word comes next.

use crate::random::{Random, Stream};

/// All characters.
const ALPHABET: &[u8] = b"\n .,()abdefgiklmnoprstuvz";
/// Nouns and verbs of each topic.
const WORDS: usize = 24;
const TOPICS: usize = 6;
const NAMES: usize = 20;
/// Endings of nouns, each with the ending of its verb.
const ENDINGS: [(&str, &str); 4] = [("a", "et"), ("o", "un"), ("is", "im"), ("er", "ol")];

/// The language.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Text {
    nouns: Vec<String>,
    verbs: Vec<String>,
    names: Vec<String>,
}

/// What the sentences of a paragraph have in common.
struct Paragraph {
    topic: usize,
    hero: usize,
}

impl Text {
    /// A language from a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut random = Random::new(seed, Stream::Templates);
        let mut words = |count: usize, syllables: usize| -> Vec<String> {
            (0..count).map(|_| stem(syllables, &mut random)).collect()
        };
        Self {
            nouns: words(WORDS * TOPICS, 1),
            verbs: words(WORDS * TOPICS, 1),
            names: words(NAMES, 2),
        }
    }

    /// How many different characters there are.
    #[must_use]
    pub fn alphabet(&self) -> usize {
        ALPHABET.len()
    }

    /// Text of a length, as numbers of characters.
    #[must_use]
    pub fn characters(&self, seed: u64, stream: Stream, count: usize) -> Vec<u32> {
        let mut random = Random::new(seed, stream);
        let mut text = String::with_capacity(count + 1000);
        while text.len() < count {
            self.paragraph(&mut random, &mut text);
        }
        let number = |byte| ALPHABET.iter().position(|letter| *letter == byte);
        let number = |byte| number(byte).expect("a letter of the alphabet") as u32;
        text.bytes().take(count).map(number).collect()
    }

    /// Characters as text.
    #[must_use]
    pub fn readable(characters: &[u32]) -> String {
        characters.iter().map(|number| ALPHABET[*number as usize] as char).collect()
    }

    fn paragraph(&self, random: &mut Random, text: &mut String) {
        let paragraph = Paragraph { topic: random.below(TOPICS), hero: random.below(NAMES) };
        for _ in 0..4 + random.below(5) {
            self.sentence(&paragraph, 0, random, text);
            text.push_str(". ");
        }
        text.push('\n');
    }

    fn sentence(&self, of: &Paragraph, depth: usize, random: &mut Random, text: &mut String) {
        let (verb_ending, is_hero) = self.subject(of, random, text);
        text.push(' ');
        let verb = &self.verbs[of.topic * WORDS + frequent(random)];
        text.push_str(verb);
        text.push_str(verb_ending);
        if depth < 2 && random.unit() < 0.35 {
            text.push_str(" (");
            self.sentence(of, depth + 1, random, text);
            text.push_str(") ");
            // Said once more, after whatever was in the brackets.
            text.push_str(verb);
            text.push_str(verb_ending);
        }
        text.push(' ');
        if is_hero || random.unit() < 0.6 {
            self.noun(of, random, text);
        } else {
            text.push_str(&self.names[of.hero]);
        }
    }

    fn subject(&self, of: &Paragraph, random: &mut Random, text: &mut String) -> (&str, bool) {
        if random.unit() < 0.4 {
            text.push_str(&self.names[of.hero]);
            return ("e", true);
        }
        (self.noun(of, random, text), false)
    }

    /// Writes a noun and returns the ending that its verb has.
    fn noun(&self, of: &Paragraph, random: &mut Random, text: &mut String) -> &'static str {
        let word = of.topic * WORDS + frequent(random);
        let (ending, verb_ending) = ENDINGS[word % ENDINGS.len()];
        text.push_str(&self.nouns[word]);
        text.push_str(ending);
        verb_ending
    }
}

/// A word of a topic: the first ones are more frequent.
fn frequent(random: &mut Random) -> usize {
    let unit = random.unit();
    ((unit * unit) * WORDS as f64) as usize
}

/// A stem of some syllables and a last consonant.
fn stem(syllables: usize, random: &mut Random) -> String {
    let (consonants, vowels) = (b"bdfgklmnprstvz", b"aeiou");
    let mut word = String::new();
    for _ in 0..syllables {
        word.push(consonants[random.below(consonants.len())] as char);
        word.push(vowels[random.below(vowels.len())] as char);
    }
    word.push(consonants[random.below(consonants.len())] as char);
    word
}
