//! How alike two names are, 0 to 1, by their words.
//!
//! `2 Σ s_i w_i / (Σ w of both)` over the words matched with each other, where `s` is how alike the two words are (1 for equal ones, less
//! for a typing mistake or an abbreviation) and `w` is small for words that nearly every name has. Names that contradict each other (two
//! different known parts, weight against bias, other numbers) are 0 alike.

use crate::name::Name;

/// Words less alike than this are different words.
const SAME_WORD: f64 = 0.7;

/// `weight` and `bias` say little about which tensor it is.
const COMMON_WORD: f64 = 0.25;

/// Words that are never one another's misspelling, however alike all others are.
const OPPOSITES: &[(&str, &str)] = &[
    ("min", "max"),
    ("up", "down"),
    ("source", "target"),
    ("src", "tgt"),
    ("left", "right"),
    ("input", "output"),
    ("in", "out"),
    ("pre", "post"),
    ("before", "after"),
    ("query", "key"),
    ("query", "value"),
    ("key", "value"),
    ("encoder", "decoder"),
    ("mean", "var"),
    ("mean", "std"),
    ("sin", "cos"),
    ("real", "imag"),
    ("row", "column"),
    ("width", "height"),
    ("teacher", "student"),
    ("online", "target"),
    ("positive", "negative"),
    ("first", "last"),
    ("start", "end"),
];

/// Words that are not short for those that begin with them: a projection down is no `downsample`.
const NOT_SHORT: &[&str] = &["down", "gate", "norm", "post"];

/// Words that make another tensor of the one that the others name.
const MADE_OF: &[&str] = &[
    "grad",
    "gradient",
    "sq",
    "mask",
    "scale",
    "scales",
    "norm",
    "normed",
    "cross",
    "crossattn",
    "lora",
    "ema",
    "shared",
    "zeros",
    "absmax",
];

/// A name's words with their weights, ready to be compared many times.
#[derive(Clone, Debug)]
pub struct Words {
    words: Vec<(String, f64)>,
    glued: String,
    stage: Option<&'static str>,
    param: Option<&'static str>,
    pub numbers: Vec<u64>,
    written: Vec<String>,
}

/// Two names that are one but for words that are typed wrong.
#[derive(Debug)]
pub struct Misspelt<'w> {
    pub score: f64,
    /// The words that differ, each with what the other name has in its place.
    pub words: Vec<(&'w str, &'w str)>,
}

/// Words of a name that may be misspelt, and letters that a name must have for a separator of it to be.
const MISSPELT_WORDS: usize = 2;
const FEWEST_LETTERS: usize = 6;
/// Longer names are not compared letter by letter.
const MOST_LETTERS: usize = 256;
/// What a name is alike at least where only letters are wrong: more than one that has another word.
const MISSPELT: f64 = 0.9;

impl Words {
    pub fn of(name: &Name) -> Self {
        // Where it stands is told by what it is: `attn_q` is the word `query`, as a misspelt one would be.
        let place = |word: &&str| !matches!(*word, "attn" | "mlp");
        let stage = name
            .stage
            .into_iter()
            .flat_map(|stage| stage.split('_').filter(place))
            .map(|word| (full(word).to_owned(), 1.0));
        let rest = name.rest.iter().map(|word| (full(word).to_owned(), 1.0));
        let param = name
            .param
            .into_iter()
            .map(|word| (word.to_owned(), COMMON_WORD));
        let words: Vec<(String, f64)> = rest.chain(stage).chain(param).collect();
        let mut numbers = name.numbers();
        numbers.sort_unstable();
        let glued = words.iter().map(|(word, _)| word.as_str()).collect();
        Self {
            glued,
            words,
            stage: name.stage,
            param: name.param,
            numbers,
            written: name.written.clone(),
        }
    }

    /// Whether only letters are wrong, in words that nobody would mistake for one another: what a name means is lost with a letter of it.
    pub fn misspelt<'w>(&'w self, other: &'w Self) -> Option<Misspelt<'w>> {
        let differ = |a: Option<&str>, b: Option<&str>| a.is_some() && b.is_some() && a != b;
        let digits = |words: &Self| {
            words
                .written
                .concat()
                .bytes()
                .filter(u8::is_ascii_digit)
                .collect::<Vec<u8>>()
        };
        if differ(self.stage, other.stage)
            || differ(self.param, other.param)
            || digits(self) != digits(other)
        {
            return None;
        }
        if self.written.len() != other.written.len() {
            let [a, b] = [self, other].map(|words| words.written.join("_"));
            let near =
                a.len().abs_diff(b.len()) <= 1 && (FEWEST_LETTERS..MOST_LETTERS).contains(&a.len());
            let score = 1.0 - (1.0 - MISSPELT) / 2.0;
            return (near && strsim::damerau_levenshtein(&a, &b) == 1).then_some(Misspelt {
                score,
                words: Vec::new(),
            });
        }
        let pairs = self
            .written
            .iter()
            .zip(&other.written)
            .filter(|(a, b)| a != b);
        let words: Vec<(&str, &str)> = pairs.map(|(a, b)| (a.as_str(), b.as_str())).collect();
        let opposite = |a: &str, b: &str| {
            OPPOSITES
                .iter()
                .any(|both| *both == (a, b) || *both == (b, a))
        };
        let alike = |(a, b): &(&str, &str)| {
            let letters = a.len().min(b.len()) >= 3 && a.len().max(b.len()) <= 64;
            Some(strsim::normalized_damerau_levenshtein(a, b))
                .filter(|alike| letters && *alike >= SAME_WORD && !opposite(a, b))
        };
        let worst = words
            .iter()
            .map(alike)
            .collect::<Option<Vec<f64>>>()?
            .into_iter()
            .reduce(f64::min)?;
        (words.len() <= MISSPELT_WORDS).then_some(Misspelt {
            score: MISSPELT + (1.0 - MISSPELT) * worst,
            words,
        })
    }

    pub fn contradicts(&self, other: &Self) -> bool {
        let differ = |a: Option<&str>, b: Option<&str>| a.is_some() && b.is_some() && a != b;
        differ(self.stage, other.stage)
            || differ(self.param, other.param)
            || self.numbers != other.numbers
            || self.is_opposite(other)
    }

    /// Whether one has a word of which the other has the opposite, or one says of what both name that it is something made of it.
    fn is_opposite(&self, other: &Self) -> bool {
        let has = |words: &Self, word: &str| words.words.iter().any(|(own, _)| own == word);
        let only = |one: &Self, two: &Self, word: &str| has(one, word) && !has(two, word);
        let apart = |a: &str, b: &str| only(self, other, a) && only(other, self, b);
        OPPOSITES.iter().any(|(a, b)| apart(a, b) || apart(b, a))
            || MADE_OF
                .iter()
                .any(|word| has(self, word) != has(other, word))
    }

    /// The words that the other name has nothing for, nor anything like it, each for one.
    pub fn own<'w>(&'w self, other: &Self) -> Vec<&'w str> {
        let mut taken = vec![false; other.words.len()];
        let mut take = |fits: &dyn Fn(&str) -> bool| {
            let at = (0..taken.len()).find(|at| !taken[*at] && fits(&other.words[*at].0));
            at.is_some_and(|at| !std::mem::replace(&mut taken[at], true))
        };
        let unequal: Vec<&str> = self
            .all()
            .filter(|word| !take(&|theirs| theirs == *word))
            .collect();
        // What kind of a parameter it is says nothing, nor that a token is kept among the embeddings.
        let says = |word: &&str| !matches!(*word, "weight" | "bias" | "embed");
        unequal
            .into_iter()
            .filter(says)
            .filter(|word| !take(&|theirs| alike(word, theirs) >= SAME_WORD))
            .collect()
    }

    pub fn all(&self) -> impl Iterator<Item = &str> {
        self.words.iter().map(|(word, _)| word.as_str())
    }

    pub fn similarity(&self, other: &Self) -> f64 {
        if self.contradicts(other) {
            0.0
        } else {
            self.likeness(other)
        }
    }

    /// The same without regard to contradictions, for suggestions.
    pub fn likeness(&self, other: &Self) -> f64 {
        if self.words.is_empty() || other.words.is_empty() {
            return 0.0;
        }
        // Only the separators differ.
        let glued = if self.glued == other.glued { 0.97 } else { 0.0 };
        let total: f64 = self
            .words
            .iter()
            .chain(&other.words)
            .map(|(_, weight)| weight)
            .sum();
        let mut taken = vec![false; other.words.len()];
        let mut shared = 0.0;
        // Equal words first, so that an abbreviation does not take a word from its equal.
        let mut open = Vec::new();
        for (word, weight) in &self.words {
            match (0..taken.len()).find(|at| !taken[*at] && other.words[*at].0 == *word) {
                Some(at) => {
                    taken[at] = true;
                    shared += 2.0 * weight;
                }
                None => open.push((word, weight)),
            }
        }
        for (word, weight) in open {
            let best = (0..taken.len())
                .filter(|at| !taken[*at])
                .map(|at| (alike(word, &other.words[at].0), at))
                .max_by(|a, b| a.0.total_cmp(&b.0));
            if let Some((alike, at)) = best.filter(|(alike, _)| *alike >= SAME_WORD) {
                taken[at] = true;
                shared += alike * (weight + other.words[at].1);
            }
        }
        (shared / total).max(glued).min(1.0)
    }
}

/// The letters that stand for words.
fn full(word: &str) -> &str {
    match word {
        "q" => "query",
        "k" => "key",
        "v" => "value",
        other => other,
    }
}

fn alike(a: &str, b: &str) -> f64 {
    let (short, long) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    // Two letters are too few to be a misspelling of one another, and a number is not a misspelling of a number.
    if short.len() < 3
        || a.bytes().any(|b| b.is_ascii_digit()) != b.bytes().any(|b| b.is_ascii_digit())
    {
        return 0.0;
    }
    let abbreviation = if long.starts_with(short) && !NOT_SHORT.contains(&short) {
        0.9
    } else {
        0.0
    };
    // Far apart in length is far apart; spares the quadratic comparison, also of hostile names.
    if long.len() > 64 || long.len() > 2 * short.len() {
        return abbreviation;
    }
    strsim::normalized_damerau_levenshtein(a, b).max(abbreviation)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::Reading;

    fn similarity(a: &str, b: &str) -> f64 {
        let words = |name: &str| Words::of(&Name::parse(name, Reading::default()));
        words(a).similarity(&words(b))
    }

    #[test]
    fn typing_mistakes_and_abbreviations_are_alike() {
        for (a, b) in [
            ("0_querry_final", "0_query_final"),
            ("0_post_atn", "0_post_attn"),
            ("0_hidden_states", "0_hidden_state"),
            ("x.proj_outer", "x.projection_outer"),
            ("0_postattnx", "0_post_attnx"),
        ] {
            assert!(similarity(a, b) > 0.8, "{a} {b} {}", similarity(a, b));
        }
    }

    #[test]
    fn a_wrong_letter_in_a_word_that_means_something_is_a_wrong_letter() {
        let words = |name: &str| Words::of(&Name::parse(name, Reading::default()));
        let misspelt = |a: &str, b: &str| words(a).misspelt(&words(b)).map(|found| found.score);
        for (a, b) in [
            (
                "layers.0.self_attn.q_proj.weight",
                "layers.0.self_attn.q_porj.weight",
            ),
            (
                "layers.0.self_attn.q_proj.weight",
                "layers.0.self_atn.q_proj.weight",
            ),
            (
                "layers.0.post_attention_layernorm.weight",
                "layers.0.post_atention_layernrom.weight",
            ),
            ("0_post_attn", "0_postattn"),
            ("0_query_final", "0_queryafinal"),
        ] {
            assert!(misspelt(a, b).is_some_and(|score| score > 0.9), "{a} {b}");
        }
        for (a, b) in [
            (
                "layers.0.self_attn.q_proj.weight",
                "layers.0.self_attn.k_prij.weight",
            ),
            (
                "layers.0.self_attn.k_prij.weight",
                "layers.0.self_attn.v_proj.weight",
            ),
            ("wte.weight", "wpe.weight"),
            ("x.conv1", "x.conv2"),
            ("row_min", "row_max"),
            ("a_b", "ab"),
        ] {
            assert_eq!(misspelt(a, b), None, "{a} {b}");
        }
    }

    #[test]
    fn different_stages_are_not_alike() {
        for (a, b) in [
            ("0_key_final", "0_query_final"),
            ("0_query", "0_query_final"),
            ("0_post_attn", "0_post_attn_pre_resid"),
            ("0_pre_mlp", "0_post_mlp"),
            ("a.weight", "b.weight"),
            ("x.q_proj.weight", "x.k_proj.weight"),
            ("x.weight", "x.bias"),
            ("fc1_out", "fc2_out"),
            ("experts.1.x", "experts.2.x"),
            ("0_post_attn", "0_post_attn_norm"),
            (
                "stages.1.blocks.0.down_proj.weight",
                "stages.1.downsample.0.weight",
            ),
            (
                "dec.blk.2.attn_v.weight",
                "decoder.block.2.layer.1.EncDecAttention.v.weight",
            ),
        ] {
            assert!(similarity(a, b) < 0.8, "{a} {b} {}", similarity(a, b));
        }
    }
}
