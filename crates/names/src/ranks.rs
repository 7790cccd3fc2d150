//! Ranks read from names and folders: `rank0/`, `_rank_0`, `.rank0.`, `tp0`, `TP0_PP0`, `cp1_tp0`, `dp0`, `ep0`, `mp_rank_00_001`,
//! `_tp_rank_1_of_4`, `shard_3`, `gpu0`, `consolidated.00`.

use crate::families::LAYER_WORDS;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A name without its ranks.
#[derive(Debug, PartialEq, Eq)]
pub struct Placed {
    /// Without the ranks that tell the shards and copies of one tensor apart.
    pub name: String,
    /// Without any coordinate: the stage of the pipeline and process numbers as well.
    pub bare: String,
    pub rank: Option<u64>,
    /// Which part of the sequence.
    pub context: Option<u64>,
    /// Which part of the batch: weights are copies.
    pub data: Option<u64>,
    /// Which of the experts: all that is no expert's is a copy.
    pub experts: Option<u64>,
    /// The stage of the pipeline.
    pub stage: Option<u64>,
}

impl Placed {
    /// An item whose name has no rank but whose run recorded one. Two ranks' tensors of one name were told apart by `#2`.
    pub fn recorded(name: &str, rank: u64) -> Self {
        let stem = name
            .rsplit_once('#')
            .filter(|(_, n)| n.parse::<u32>().is_ok())
            .map_or(name, |(stem, _)| stem);
        Self {
            name: stem.to_owned(),
            bare: stem.to_owned(),
            rank: Some(rank),
            context: None,
            data: None,
            experts: None,
            stage: None,
        }
    }

    /// What tells the shards of one tensor apart.
    pub fn place(&self) -> Place {
        [self.rank, self.context, self.data, self.experts]
    }
}

/// The ranks of the tensor, the context, the data and the experts.
pub type Place = [Option<u64>; 4];
pub const NOWHERE: Place = [None; 4];

/// One number for each of these places, which are in order: the rank where there are no others, else counted through a grid of which nothing is
/// missing. None at all for what has no place.
pub fn counted(places: &[Place]) -> Option<Vec<u64>> {
    let axis = |axis: usize| {
        places
            .iter()
            .map(|place| place[axis])
            .collect::<BTreeSet<Option<u64>>>()
    };
    let varying: Vec<usize> = (0..NOWHERE.len())
        .filter(|at| axis(*at).len() > 1)
        .collect();
    match varying.as_slice() {
        [] => Some(
            places
                .iter()
                .filter_map(|place| place.iter().copied().flatten().next())
                .collect(),
        ),
        [one] => Some(places.iter().filter_map(|place| place[*one]).collect()),
        several => {
            let whole = several.iter().map(|at| axis(*at).len()).product::<usize>() == places.len();
            let known = several.iter().all(|at| !axis(*at).contains(&None));
            (whole && known).then(|| (0..places.len() as u64).collect())
        }
    }
}

/// Where every stage of a pipeline counts its layers from zero: the names without the stage and with the layers counted through, as far as
/// that leaves each of them one tensor's.
pub fn counted_through(placed: &[Option<Placed>]) -> HashMap<usize, String> {
    let mut depths: BTreeMap<u64, u64> = BTreeMap::new();
    let mut first: HashMap<u64, u64> = HashMap::new();
    for (placed, stage) in placed
        .iter()
        .flatten()
        .filter_map(|placed| Some((placed, placed.stage?)))
    {
        let Some((_, layer)) = numbered_layer(&placed.bare) else {
            continue;
        };
        let depth = depths.entry(stage).or_default();
        *depth = (*depth).max(layer.saturating_add(1));
        let least = first.entry(stage).or_insert(layer);
        *least = (*least).min(layer);
    }
    // Only where it must be so: some stage after the first begins with layer zero again.
    let whole = depths.keys().copied().eq(0..depths.len() as u64)
        && depths.len() > 1
        && first.values().all(|least| *least == 0);
    if !whole {
        return HashMap::new();
    }
    let before = |stage: u64| {
        depths
            .range(..stage)
            .fold(0u64, |sum, (_, depth)| sum.saturating_add(*depth))
    };
    let counted = |placed: &Placed| -> Option<String> {
        let Some((digits, layer)) = numbered_layer(&placed.bare) else {
            return Some(placed.bare.clone());
        };
        let (start, end) = (&placed.bare[..digits.start], &placed.bare[digits.end..]);
        Some(format!(
            "{start}{}{end}",
            layer.checked_add(before(placed.stage?))?
        ))
    };
    let names: Vec<Option<String>> = placed
        .iter()
        .map(|placed| placed.as_ref().and_then(counted))
        .collect();
    let mut times: HashMap<(&str, Place), usize> = HashMap::new();
    let key = |i: usize| {
        names[i]
            .as_deref()
            .map(|name| (name, placed[i].as_ref().map_or(NOWHERE, Placed::place)))
    };
    (0..names.len())
        .filter_map(key)
        .for_each(|key| *times.entry(key).or_default() += 1);
    let once = |i: &usize| key(*i).is_some_and(|key| times[&key] == 1);
    (0..names.len())
        .filter(once)
        .filter_map(|i| Some((i, names[i].clone()?)))
        .collect()
}

/// The number behind the word for a layer: where its digits are, and the number.
fn numbered_layer(name: &str) -> Option<(std::ops::Range<usize>, u64)> {
    let mut at = 0;
    let mut word_before = false;
    for token in tokens(name) {
        at += token.separator.len();
        let end = at + token.text.len();
        if word_before && let Ok(layer) = token.text.parse() {
            return Some((at..end, layer));
        }
        word_before = LAYER_WORDS.contains(&token.text);
        at = end;
    }
    None
}

/// How many ranks each of several tensors has, when all have as many and come one after another.
pub fn ranks_of_pieces(placed: &[Option<Placed>]) -> Option<usize> {
    let runs = placed.chunk_by(|a, b| {
        a.as_ref()
            .zip(b.as_ref())
            .is_some_and(|(a, b)| a.bare == b.bare)
    });
    let counts: Vec<usize> = runs.map(<[Option<Placed>]>::len).collect();
    counts
        .first()
        .copied()
        .filter(|first| *first > 1 && counts.iter().all(|count| count == first))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Coordinate {
    Tensor,
    Global,
    Pipeline,
    Context,
    Data,
    Experts,
    Other,
}

/// `None` when the name has no coordinate at all.
pub fn parse(name: &str) -> Option<Placed> {
    if !may_have(name.as_bytes()) {
        return None;
    }
    let tokens = tokens(name);
    let mut marks: Vec<Option<Coordinate>> = vec![None; tokens.len()];
    let (mut tensor, mut global, mut stage, mut context, mut data, mut experts) =
        (None, None, None, None, None, None);
    let mut at = 0;
    while at < tokens.len() {
        let Some((mut kind, number, mut len)) = coordinate(&tokens[at..]) else {
            at += 1;
            continue;
        };
        let mut from = at;
        // `tp_rank_0`: the word before says which rank.
        let before = at
            .checked_sub(1)
            .filter(|before| kind == Coordinate::Global && marks[*before].is_none());
        if let Some((before, named)) =
            before.and_then(|before| Some((before, word(tokens[before].text)?)))
        {
            (kind, from) = (named, before);
        }
        match kind {
            Coordinate::Tensor => tensor = tensor.or(Some(number)),
            Coordinate::Global => global = global.or(Some(number)),
            Coordinate::Pipeline => stage = stage.or(Some(number)),
            Coordinate::Context => context = context.or(Some(number)),
            Coordinate::Data => data = data.or(Some(number)),
            Coordinate::Experts => experts = experts.or(Some(number)),
            Coordinate::Other => {}
        }
        // Megatron's `mp_rank_00_001`: the stage of the pipeline, and with one number more the part of the experts.
        if kind == Coordinate::Tensor && from < at {
            let counts = |token: &&Token<'_>| {
                token.separator == "_" && token.text.len() == 3 && token.text.parse::<u64>().is_ok()
            };
            let more: Vec<u64> = tokens[at + len..]
                .iter()
                .take_while(counts)
                .take(2)
                .filter_map(|token| token.text.parse().ok())
                .collect();
            stage = stage.or(more.first().copied());
            experts = experts.or(more.get(1).copied());
            len += more.len();
        }
        // `_1_of_4`: how many there are is no part of the name either.
        if let [of, count, ..] = &tokens[at + len..]
            && of.text.eq_ignore_ascii_case("of")
            && count.text.parse::<u64>().is_ok()
        {
            len += 2;
        }
        marks[from..at + len].fill(Some(kind));
        at += len;
    }
    if marks.iter().all(Option::is_none) {
        return None;
    }
    // With a tensor-parallel rank, the global one says nothing more about shards of one tensor than the other coordinates; without, it says
    // all that they do.
    let [context, data, experts] =
        [context, data, experts].map(|at| at.filter(|_| tensor.is_some() || global.is_none()));
    let is_rank = |kind: Coordinate| match kind {
        Coordinate::Tensor | Coordinate::Context | Coordinate::Data | Coordinate::Experts => true,
        Coordinate::Global => tensor.is_none(),
        Coordinate::Pipeline | Coordinate::Other => false,
    };
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
    let (name, bare) = (
        keep(&|mark| !mark.is_some_and(is_rank)),
        keep(&|mark| mark.is_none()),
    );
    Some(Placed {
        name,
        bare,
        rank: tensor.or(global),
        context,
        data,
        experts,
        stage,
    })
}

/// Whether the letters of a coordinate are there at all; spares taking most names apart.
fn may_have(name: &[u8]) -> bool {
    name.windows(2).any(|two| match two[1] {
        b'p' | b'P' => matches!(two[0] | 0x20, b't' | b'm' | b'p' | b'd' | b'e' | b'c'),
        b'k' | b'K' => two[0] | 0x20 == b'n',
        // `shard`, `consolidated`
        b'd' | b'D' => matches!(two[0] | 0x20, b'r' | b'e'),
        // `gpu`
        b'u' | b'U' => two[0] | 0x20 == b'p',
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
        tokens.push(Token {
            separator: &rest[..skipped],
            text: &text[..len],
        });
        from += skipped + len;
    }
    tokens
}

fn word(text: &str) -> Option<Coordinate> {
    let is = |word: &&str| text.eq_ignore_ascii_case(word);
    if ["tp", "mp"].iter().any(is) {
        Some(Coordinate::Tensor)
    } else if text.eq_ignore_ascii_case("pp") {
        Some(Coordinate::Pipeline)
    } else if text.eq_ignore_ascii_case("cp") {
        Some(Coordinate::Context)
    } else if text.eq_ignore_ascii_case("dp") {
        Some(Coordinate::Data)
    } else if text.eq_ignore_ascii_case("ep") {
        Some(Coordinate::Experts)
    } else if text.eq_ignore_ascii_case("pid") {
        Some(Coordinate::Other)
    } else {
        // `consolidated` is what Meta calls the files of the ranks.
        ["rank", "shard", "gpu", "consolidated"]
            .iter()
            .any(is)
            .then_some(Coordinate::Global)
    }
}

/// The coordinate that the tokens begin with: its number, and how many tokens it takes.
fn coordinate(tokens: &[Token<'_>]) -> Option<(Coordinate, u64, usize)> {
    let text = tokens[0].text;
    // Most words are none; this costs a comparison.
    if !matches!(
        text.as_bytes().first()?.to_ascii_lowercase(),
        b'r' | b't' | b'm' | b'p' | b'd' | b'e' | b'c' | b's' | b'g'
    ) {
        return None;
    }
    let letters = text.trim_end_matches(|c: char| c.is_ascii_digit());
    let kind = word(letters)?;
    if letters.len() < text.len() {
        return Some((kind, text[letters.len()..].parse().ok()?, 1));
    }
    let next = tokens.get(1)?.text;
    Some((
        kind,
        next.bytes()
            .all(|b| b.is_ascii_digit())
            .then(|| next.parse().ok())??,
        2,
    ))
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
            (
                "mp_rank_00_model_states.module.x",
                "model_states.module.x",
                0,
            ),
            ("tp_rank_1/x", "x", 1),
            ("rank=2/x", "x", 2),
            ("x.weight_tp_rank_1_of_4", "x.weight", 1),
            ("shard_3/x", "x", 3),
            ("x_shard_1_of_2", "x", 1),
            ("consolidated.01.layers.0.w", "layers.0.w", 1),
            ("gpu3/x", "x", 3),
        ] {
            let placed = parse(name).unwrap_or_else(|| panic!("{name}"));
            assert_eq!(
                (placed.bare.as_str(), placed.rank),
                (bare, Some(rank)),
                "{name}"
            );
        }
    }

    #[test]
    fn words_that_only_look_like_ranks_are_none() {
        for name in [
            "x.weight",
            "ranking.weight",
            "layers.0.mlp.w1",
            "rank.weight",
            "tpx0",
            "step-1/x",
            "top0",
            "0_query",
            "sharded0",
            "x.hard_1",
            "",
        ] {
            assert_eq!(parse(name), None, "{name}");
        }
    }

    #[test]
    fn a_global_rank_hides_that_of_the_context() {
        assert_eq!(
            parse("rank3_cp1/x").unwrap().place(),
            [Some(3), None, None, None]
        );
    }

    #[test]
    fn megatrons_folders_name_the_stage_and_the_experts_after_the_rank() {
        let placed = parse("mp_rank_01_003/x").unwrap();
        assert_eq!(
            (
                placed.bare.as_str(),
                placed.rank,
                placed.stage,
                placed.experts
            ),
            ("x", Some(1), Some(3), None)
        );
        let placed = parse("mp_rank_01_003_002/x").unwrap();
        assert_eq!(
            (
                placed.bare.as_str(),
                placed.rank,
                placed.stage,
                placed.experts
            ),
            ("x", Some(1), Some(3), Some(2))
        );
        assert_eq!(parse("mp_rank_00_model_states/0.x").unwrap().stage, None);
    }

    #[test]
    fn a_tensor_rank_wins_over_the_global_one() {
        let placed = parse("rank5/tp1/x").unwrap();
        assert_eq!((placed.rank, placed.bare.as_str()), (Some(1), "x"));
    }
}
