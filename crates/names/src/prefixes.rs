//! What nearly all names of a side begin with, where it keeps them from being read: `sequential.`, `w2v_encoder.w2v_model.`, `trunk.`.
//!
//! A prefix that every name has, but for those of a head, tells no tensor of its side from another. Whether it says something is asked of the
//! other side: it is left out when most names of both then say the same, and did not before. A layer's number is no part of it: all of a dump
//! may be one layer.

use crate::{
    families::LAYER_WORDS,
    name::{Name, Reading},
};
use std::collections::{HashMap, HashSet};

/// Names of a side that are read to find out.
const LOOKED_AT: usize = 2000;

/// Segments of a prefix: nobody wraps a model more often.
const DEEPEST: usize = 4;

/// Fewer names in common may be so by chance.
const FEWEST: usize = 4;

type Keys = HashSet<(bool, String)>;

/// The prefix of each side that its names are read without; mostly nothing.
pub fn of(names: [&[String]; 2]) -> [String; 2] {
    let names = names.map(|names| {
        names
            .iter()
            .take(LOOKED_AT)
            .map(String::as_str)
            .collect::<Vec<&str>>()
    });
    let two_stacks = names
        .iter()
        .any(|names| Reading::of(names.iter().copied()).two_stacks);
    let keys = |side: usize, prefix: &str| -> Keys {
        let plain = || {
            names[side]
                .iter()
                .map(|name| name.strip_prefix(prefix).unwrap_or(name))
        };
        let reading = Reading::of(plain()).with_stacks(two_stacks);
        let key = |name: &str| {
            let name = Name::parse(name, reading);
            (name.layer.is_some(), name.key())
        };
        plain().map(key).collect()
    };
    let whole = [keys(0, ""), keys(1, "")];
    let agree = |one: &Keys, other: &Keys| one.intersection(other).count();
    // Most say the same as they are.
    let plainly = agree(&whole[0], &whole[1]);
    if plainly * 2 >= whole[0].len().min(whole[1].len()) {
        return Default::default();
    }
    let [reference, candidate] = [0, 1].map(|side| {
        let mut read = vec![(String::new(), whole[side].clone())];
        read.extend(prefixes(&names[side]).into_iter().map(|prefix| {
            let keys = keys(side, &prefix);
            (prefix, keys)
        }));
        read
    });
    let mut best = (plainly, Default::default());
    for (r, own) in &reference {
        for (c, other) in &candidate {
            let both = agree(own, other);
            // The shortest that do as well come first.
            if both > best.0
                && both >= FEWEST
                && both > 2 * plainly
                && both * 2 >= own.len().max(other.len())
            {
                best = (both, [r.clone(), c.clone()]);
            }
        }
    }
    best.1
}

/// The beginnings that three quarters of these names have, segment by segment.
fn prefixes(names: &[&str]) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    while found.len() < DEEPEST {
        let before = found.last().map_or(0, String::len);
        let mut times: HashMap<&str, usize> = HashMap::new();
        for name in names.iter().filter(|name| {
            found
                .last()
                .is_none_or(|prefix| name.starts_with(prefix.as_str()))
        }) {
            if let Some(end) = name[before..]
                .find(['.', '/'])
                .filter(|end| before == 0 || *end > 0)
            {
                *times.entry(&name[..=before + end]).or_default() += 1;
            }
        }
        let most = times
            .into_iter()
            .find(|(_, times)| times * 4 >= names.len() * 3);
        match most.filter(|(prefix, times)| {
            *times > 1 && !is_numbered(prefix[before..].trim_end_matches(['.', '/']))
        }) {
            Some((prefix, _)) => found.push(prefix.to_owned()),
            None => break,
        }
    }
    found
}

/// Whether a segment is a layer's: `3`, `blocks_3`. Not `dinov2`.
fn is_numbered(segment: &str) -> bool {
    let word = segment.trim_end_matches(|last: char| last.is_ascii_digit());
    word.len() < segment.len()
        && (word.is_empty() || LAYER_WORDS.contains(&word.trim_end_matches(['_', '-'])))
}

/// What both begin with, up to the last separator.
pub fn shared_prefix<'n>(one: &'n str, other: &'n str) -> &'n str {
    let same = one
        .bytes()
        .zip(other.bytes())
        .take_while(|(a, b)| a == b)
        .count();
    let end = one.as_bytes()[..same]
        .iter()
        .rposition(|byte| matches!(byte, b'.' | b'/'))
        .map_or(0, |at| at + 1);
    &one[..end]
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_prefix_is_kept_where_the_other_side_is_mostly_something_else() {
        let trunk = ["trunk.a", "trunk.b", "trunk.c", "trunk.d"].map(str::to_owned);
        let more = ["a", "b", "c", "d", "e", "f", "g", "h", "i"].map(str::to_owned);
        assert_eq!(super::of([&trunk, &more]), ["", ""]);
        assert_eq!(super::of([&trunk, &more[..5]]), ["trunk.", ""]);
    }
}
