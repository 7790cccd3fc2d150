//! Ranks: read from names and folders (`rank0/`, `_rank_0`, `.rank0.`, `tp0`, `TP0_PP0`, `mp_rank_00`) and from what a run recorded.
//!
//! The shards of one tensor become one [`Unit`], so that every rule pairs whole tensors and knows nothing of ranks.

use super::names::Name;
use crate::{layout::Parts, settings::Rule, side::Item};
use std::{
    cell::OnceCell,
    collections::{HashMap, HashSet},
};

/// What rules pair: one item, or one tensor's shards in the order of their ranks.
#[derive(Debug)]
pub(super) struct Unit {
    /// Without ranks, where they could be taken out.
    pub(super) name: String,
    pub(super) items: Vec<usize>,
    pub(super) parsed: OnceCell<Name>,
}

impl Unit {
    fn new(name: String, items: Vec<usize>) -> Self {
        Self { name, items, parsed: OnceCell::new() }
    }
}

/// A name without its ranks.
#[derive(Debug, PartialEq, Eq)]
struct Placed {
    /// Without the tensor-parallel rank.
    name: String,
    /// Without any coordinate: pipeline, data, context and expert ranks and process numbers as well.
    bare: String,
    rank: Option<u64>,
}

/// The units of the items that are free, in the order of their first item.
pub(super) fn units(items: &[Item], free: impl Fn(usize) -> bool) -> Vec<Unit> {
    let at: Vec<usize> = (0..items.len()).filter(|at| free(*at)).collect();
    let placed: Vec<Option<Placed>> = at.iter().map(|at| place(&items[*at])).collect();
    if placed.iter().all(Option::is_none) {
        return at.into_iter().map(|at| Unit::new(items[at].name.clone(), vec![at])).collect();
    }
    // Pipeline and other coordinates go too, as long as that leaves every name one tensor.
    let full = |i: usize| items[at[i]].name.as_str();
    let bare = |i: usize| placed[i].as_ref().map_or((full(i), None), |p| (p.bare.as_str(), p.rank));
    let mut seen = HashSet::new();
    let all_bare = (0..at.len()).all(|i| seen.insert(bare(i)));
    let stem = |i: usize| placed[i].as_ref().map_or(full(i), |p| if all_bare { &p.bare } else { &p.name });
    let mut groups: HashMap<&str, Vec<usize>> = HashMap::new();
    (0..at.len()).for_each(|i| groups.entry(stem(i)).or_default().push(i));
    let rank = |i: usize| placed[i].as_ref().and_then(|p| p.rank);
    let mut units = Vec::with_capacity(groups.len());
    for (name, mut group) in groups {
        group.sort_by_key(|i| (rank(*i), *i));
        let one_tensor = group.windows(2).all(|two| {
            let (a, b) = (&items[at[two[0]]], &items[at[two[1]]]);
            rank(two[0]).is_some() && rank(two[0]) < rank(two[1]) && a.dtype == b.dtype && a.shape.rank() == b.shape.rank()
        });
        if one_tensor {
            units.push(Unit::new(name.to_owned(), group.into_iter().map(|i| at[i]).collect()));
        } else {
            units.extend(group.into_iter().map(|i| Unit::new(full(i).to_owned(), vec![at[i]])));
        }
    }
    units.sort_by_key(|unit| unit.items.iter().min().copied());
    units
}

/// What several items of one side of a pair are to each other: shards of one name, or the tensors that the other side has fused into one.
pub(crate) fn kind_of_parts<'i>(rule: Rule, items: impl Iterator<Item = &'i Item>) -> Parts {
    let placed: Vec<Option<Placed>> = items.map(place).collect();
    let one_name = |placed: &[Option<Placed>]| {
        let bare: HashSet<Option<&str>> = placed.iter().map(|placed| placed.as_ref().map(|placed| placed.bare.as_str())).collect();
        bare.len() == 1 && !bare.contains(&None)
    };
    match placed.len() {
        0 | 1 => Parts::Unknown,
        _ if one_name(&placed) => Parts::Ranks,
        // Only this rule puts different tensors together; whoever else names several may mean anything.
        _ if rule == Rule::Normalized && placed.iter().all(Option::is_none) => Parts::Pieces,
        _ if rule == Rule::Normalized => ranks_of_pieces(&placed).map_or(Parts::Unknown, Parts::RanksOfPieces),
        _ => Parts::Unknown,
    }
}

/// How many ranks each of several tensors has, when all have as many and come one after another.
fn ranks_of_pieces(placed: &[Option<Placed>]) -> Option<usize> {
    let runs = placed.chunk_by(|a, b| a.as_ref().zip(b.as_ref()).is_some_and(|(a, b)| a.bare == b.bare));
    let counts: Vec<usize> = runs.map(<[Option<Placed>]>::len).collect();
    counts.first().copied().filter(|first| *first > 1 && counts.iter().all(|count| count == first))
}

fn place(item: &Item) -> Option<Placed> {
    parse(&item.name).or_else(|| {
        let meta = item.meta.as_ref()?;
        let rank = ["tp_rank", "rank"].iter().find_map(|key| meta.get(*key)?.as_u64())?;
        // Two ranks' tensors of one name were told apart by `#2`.
        let stem = item.name.rsplit_once('#').filter(|(_, n)| n.parse::<u32>().is_ok()).map_or(item.name.as_str(), |(stem, _)| stem);
        Some(Placed { name: stem.to_owned(), bare: stem.to_owned(), rank: Some(rank) })
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Coordinate {
    Tensor,
    Global,
    Other,
}

/// `None` when the name has no coordinate at all.
fn parse(name: &str) -> Option<Placed> {
    if !may_have(name.as_bytes()) {
        return None;
    }
    let tokens = tokens(name);
    let mut marks: Vec<Option<Coordinate>> = vec![None; tokens.len()];
    let (mut tensor, mut global, mut any) = (None, None, false);
    let mut at = 0;
    while at < tokens.len() {
        let Some((mut kind, number, len)) = coordinate(&tokens[at..]) else {
            at += 1;
            continue;
        };
        let mut from = at;
        // `tp_rank_0`: the word before says which rank.
        let before = at.checked_sub(1).filter(|before| kind == Coordinate::Global && marks[*before].is_none());
        if let Some((before, named)) = before.and_then(|before| Some((before, word(tokens[before].text)?))) {
            (kind, from) = (named, before);
        }
        match kind {
            Coordinate::Tensor => tensor = tensor.or(Some(number)),
            Coordinate::Global => global = global.or(Some(number)),
            Coordinate::Other => {}
        }
        marks[from..at + len].fill(Some(kind));
        any = true;
        at += len;
    }
    if !any {
        return None;
    }
    // With a tensor-parallel rank, the global one says nothing more about shards of one tensor than the other coordinates.
    let is_rank = |kind: Coordinate| kind == Coordinate::Tensor || kind == Coordinate::Global && tensor.is_none();
    let keep = |kept: &dyn Fn(Option<Coordinate>) -> bool| {
        let mut out = String::with_capacity(name.len());
        for (token, _) in tokens.iter().zip(&marks).filter(|(_, mark)| kept(**mark)) {
            if !out.is_empty() {
                out.push_str(token.separator);
            }
            out.push_str(token.text);
        }
        out
    };
    Some(Placed { name: keep(&|mark| !mark.is_some_and(is_rank)), bare: keep(&|mark| mark.is_none()), rank: tensor.or(global) })
}

/// Whether the letters of a coordinate are there at all; spares taking most names apart.
fn may_have(name: &[u8]) -> bool {
    name.windows(2).any(|two| match two[1] {
        b'p' | b'P' => matches!(two[0] | 0x20, b't' | b'm' | b'p' | b'd' | b'e' | b'c'),
        b'k' | b'K' => two[0] | 0x20 == b'n',
        _ => false,
    })
}

struct Token<'a> {
    /// What stands before it.
    separator: &'a str,
    text: &'a str,
}

fn tokens(name: &str) -> Vec<Token<'_>> {
    let is_separator = |c: char| matches!(c, '/' | '.' | '_' | '-' | ':' | '=' | ' ');
    let mut tokens = Vec::new();
    let mut from = 0;
    while from < name.len() {
        let rest = &name[from..];
        let skipped = rest.find(|c| !is_separator(c)).unwrap_or(rest.len());
        let text = &rest[skipped..];
        let len = text.find(is_separator).unwrap_or(text.len());
        tokens.push(Token { separator: &rest[..skipped], text: &text[..len] });
        from += skipped + len;
    }
    tokens
}

fn word(text: &str) -> Option<Coordinate> {
    let is = |word: &&str| text.eq_ignore_ascii_case(word);
    if ["tp", "mp"].iter().any(is) {
        Some(Coordinate::Tensor)
    } else if ["pp", "dp", "ep", "cp", "pid"].iter().any(is) {
        Some(Coordinate::Other)
    } else {
        text.eq_ignore_ascii_case("rank").then_some(Coordinate::Global)
    }
}

/// The coordinate that the tokens begin with: its number, and how many tokens it takes.
fn coordinate(tokens: &[Token<'_>]) -> Option<(Coordinate, u64, usize)> {
    let text = tokens[0].text;
    // Most words are none; this costs a comparison.
    if !matches!(text.as_bytes().first()?.to_ascii_lowercase(), b'r' | b't' | b'm' | b'p' | b'd' | b'e' | b'c') {
        return None;
    }
    let letters = text.trim_end_matches(|c: char| c.is_ascii_digit());
    let kind = word(letters)?;
    if letters.len() < text.len() {
        return Some((kind, text[letters.len()..].parse().ok()?, 1));
    }
    let next = tokens.get(1)?.text;
    Some((kind, next.bytes().all(|b| b.is_ascii_digit()).then(|| next.parse().ok())??, 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_read_from_names_and_folders() {
        for (name, bare, rank) in [
            ("rank0/x.weight", "x.weight", 0),
            ("rank-1/x.weight", "x.weight", 1),
            ("rank-00012/x", "x", 12),
            ("x_rank_3", "x", 3),
            ("x.weight_tp2", "x.weight", 2),
            ("a.rank0.b", "a.b", 0),
            ("TP1_PP0/layers.0.w", "layers.0.w", 1),
            ("mp_rank_03/x", "x", 3),
            ("TP1_PP0_Rank1_pid4711/Pass00002.x", "Pass00002.x", 1),
            ("mp_rank_00_model_states.module.x", "model_states.module.x", 0),
            ("tp_rank_1/x", "x", 1),
            ("rank=2/x", "x", 2),
        ] {
            let placed = parse(name).unwrap_or_else(|| panic!("{name}"));
            assert_eq!((placed.bare.as_str(), placed.rank), (bare, Some(rank)), "{name}");
        }
    }

    #[test]
    fn words_that_only_look_like_ranks_are_none() {
        for name in ["x.weight", "ranking.weight", "layers.0.mlp.w1", "rank.weight", "tpx0", "step-1/x", "top0", "0_query", ""] {
            assert_eq!(parse(name), None, "{name}");
        }
    }

    #[test]
    fn a_tensor_rank_wins_over_the_global_one() {
        let placed = parse("rank5/tp1/x").unwrap();
        assert_eq!((placed.rank, placed.bare.as_str()), (Some(1), "x"));
    }
}
