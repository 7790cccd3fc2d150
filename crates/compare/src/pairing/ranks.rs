//! Ranks: read from names (see [`twinscope_names::ranks`]) and from what a run recorded.
//!
//! The shards of one tensor become one [`Unit`], so that every rule pairs whole tensors and knows nothing of ranks.

use crate::{layout::Parts, settings::Rule, side::Item};
use std::{
    cell::OnceCell,
    collections::{HashMap, HashSet},
};
use twinscope_names::{
    local_experts,
    name::Name,
    ranks::{self, NOWHERE, Place, Placed},
};

/// What rules pair: one item, or one tensor's shards in the order of their ranks.
#[derive(Debug)]
pub(super) struct Unit {
    /// Without ranks, where they could be taken out.
    pub(super) name: String,
    pub(super) items: Vec<usize>,
    /// The rank of each item; empty where none is known.
    pub(super) ranks: Vec<u64>,
    pub(super) parsed: OnceCell<Name>,
}

impl Unit {
    fn new(name: String, items: Vec<usize>, ranks: Vec<u64>) -> Self {
        Self {
            name,
            items,
            ranks,
            parsed: OnceCell::new(),
        }
    }
}

/// The units of the items that are free, in the order of their first item.
pub(super) fn units(items: &[Item], free: impl Fn(usize) -> bool) -> Vec<Unit> {
    let at: Vec<usize> = (0..items.len()).filter(|at| free(*at)).collect();
    let mut placed: Vec<Option<Placed>> = at.iter().map(|at| place(&items[*at])).collect();
    if placed.iter().all(Option::is_none) {
        return at
            .into_iter()
            .map(|at| Unit::new(items[at].name.clone(), vec![at], Vec::new()))
            .collect();
    }
    local_experts::count_through(&mut placed);
    // Pipeline and other coordinates go too, as long as that leaves every name one tensor.
    let full = |i: usize| items[at[i]].name.as_str();
    let bare = |i: usize| {
        placed[i]
            .as_ref()
            .map_or((full(i), NOWHERE), |p| (p.bare.as_str(), p.place()))
    };
    let mut seen = HashSet::new();
    let all_bare = (0..at.len()).all(|i| seen.insert(bare(i)));
    let through = if all_bare {
        HashMap::new()
    } else {
        ranks::counted_through(&placed)
    };
    let stem = |i: usize| match (&placed[i], through.get(&i)) {
        (_, Some(counted)) => counted.as_str(),
        (Some(p), None) => {
            if all_bare {
                &p.bare
            } else {
                &p.name
            }
        }
        (None, None) => full(i),
    };
    let mut groups: HashMap<&str, Vec<usize>> = HashMap::new();
    (0..at.len()).for_each(|i| groups.entry(stem(i)).or_default().push(i));
    let place = |i: usize| placed[i].as_ref().map_or(NOWHERE, Placed::place);
    let mut units = Vec::with_capacity(groups.len());
    for (name, mut group) in groups {
        group.sort_by_key(|i| (place(*i), *i));
        let one_tensor = group.windows(2).all(|two| {
            let (a, b) = (&items[at[two[0]]], &items[at[two[1]]]);
            let [before, after] = [place(two[0]), place(two[1])];
            before != NOWHERE
                && before < after
                && a.dtype == b.dtype
                && a.shape.rank() == b.shape.rank()
        });
        let places: Vec<Place> = group.iter().map(|i| place(*i)).collect();
        if let Some(ranks) = ranks::counted(&places).filter(|_| one_tensor) {
            units.push(Unit::new(
                name.to_owned(),
                group.into_iter().map(|i| at[i]).collect(),
                ranks,
            ));
        } else {
            units.extend(
                group
                    .into_iter()
                    .map(|i| Unit::new(full(i).to_owned(), vec![at[i]], Vec::new())),
            );
        }
    }
    units.sort_by_key(|unit| unit.items.iter().min().copied());
    units
}

/// Whether a rank is part of an item's name: a run of one process is rank 0 of nothing else.
pub(crate) fn names_rank(item: &Item) -> bool {
    ranks::parse(&item.name).is_some_and(|placed| placed.place() != NOWHERE)
}

/// The rank that a name or a run says an item is of. None where it is one of a grid: of that nothing is missing.
pub(crate) fn rank_of(item: &Item) -> Option<u64> {
    let mut known = place(item)?.place().into_iter().flatten();
    known.next().filter(|_| known.next().is_none())
}

/// What several items of one side of a pair are to each other: shards of one name, or the tensors that the other side has fused into one.
pub(crate) fn kind_of_parts<'i>(rule: Rule, items: impl Iterator<Item = &'i Item>) -> Parts {
    let placed: Vec<Option<Placed>> = items.map(place).collect();
    let one_name = |placed: &[Option<Placed>]| {
        let bare: HashSet<Option<&str>> = placed
            .iter()
            .map(|placed| placed.as_ref().map(|placed| placed.bare.as_str()))
            .collect();
        bare.len() == 1 && !bare.contains(&None)
    };
    match placed.len() {
        0 | 1 => Parts::Unknown,
        _ if one_name(&placed) => Parts::Ranks,
        // Only this rule puts different tensors together; whoever else names several may mean anything.
        _ if rule == Rule::Normalized && placed.iter().all(Option::is_none) => Parts::Pieces,
        _ if rule == Rule::Normalized => {
            ranks::ranks_of_pieces(&placed).map_or(Parts::Unknown, Parts::RanksOfPieces)
        }
        _ => Parts::Unknown,
    }
}

fn place(item: &Item) -> Option<Placed> {
    ranks::parse(&item.name).or_else(|| {
        let meta = item.meta.as_ref()?;
        let rank = ["tp_rank", "rank"]
            .iter()
            .find_map(|key| meta.get(*key)?.as_u64())?;
        Some(Placed::recorded(&item.name, rank))
    })
}

#[cfg(test)]
mod tests {
    use crate::{pairing::testing::paired, settings::Rule};

    #[test]
    fn layers_that_every_stage_of_a_pipeline_counts_from_zero_are_counted_through() {
        let whole = [
            "embed.weight",
            "layers.0.w",
            "layers.1.w",
            "layers.2.w",
            "layers.3.w",
            "head.weight",
        ];
        let staged = [
            "pp0/embed.weight",
            "pp0/layers.0.w",
            "pp0/layers.1.w",
            "pp1/layers.0.w",
            "pp1/layers.1.w",
            "pp1/head.weight",
        ];
        let expected: Vec<String> = whole
            .iter()
            .zip(staged)
            .map(|(a, b)| format!("{a}={b}"))
            .collect();
        assert_eq!(paired(&[Rule::Exact], &whole, &staged), expected);
        // Stages that go on counting are as they were, and an embedding that two stages have is told by its stage.
        let on = [
            "pp0/layers.0.w",
            "pp0/layers.1.w",
            "pp1/layers.2.w",
            "pp1/layers.3.w",
            "pp0/embed.weight",
            "pp1/embed.weight",
        ];
        assert_eq!(
            paired(&[Rule::Exact], &["layers.0.w", "layers.3.w"], &on[..4]),
            ["layers.0.w=pp0/layers.0.w", "layers.3.w=pp1/layers.3.w"]
        );
        let tied = [&staged[..], &["pp1/embed.weight"]].concat();
        assert_eq!(paired(&[Rule::Exact], &whole[1..5], &tied).len(), 4);
    }

    #[test]
    fn ranks_of_the_context_are_shards_of_the_sequence_and_a_grid_with_those_of_the_tensor() {
        assert_eq!(
            paired(&[Rule::Exact], &["x"], &["cp1/x", "cp0/x"]),
            ["x=cp0/x+cp1/x"]
        );
        let grid = ["cp0_tp0/x", "cp0_tp1/x", "cp1_tp0/x", "cp1_tp1/x"];
        assert_eq!(
            paired(&[Rule::Exact], &["x"], &grid),
            ["x=cp0_tp0/x+cp1_tp0/x+cp0_tp1/x+cp1_tp1/x"]
        );
        // Of a grid that is not whole nobody knows what is where.
        assert_eq!(paired(&[Rule::Exact], &["x"], &grid[..3]), [""; 0]);
    }

    #[test]
    fn experts_that_every_rank_counts_from_zero_are_counted_through() {
        let whole: Vec<String> = (0..4)
            .map(|expert| format!("layers.0.mlp.experts.{expert}.up_proj.weight"))
            .collect();
        let ranks: Vec<String> = (0..4)
            .map(|expert| {
                format!(
                    "ep{}/layers.0.mlp.experts.local_experts.{}.up_proj.weight",
                    expert / 2,
                    expert % 2
                )
            })
            .collect();
        let expected: Vec<String> = whole
            .iter()
            .zip(&ranks)
            .map(|(r, c)| format!("{r}={c}"))
            .collect();
        let [r, c] =
            [&whole, &ranks].map(|names| names.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(paired(&[Rule::Normalized], &r, &c), expected);
    }

    #[test]
    fn experts_that_are_counted_through_stay_as_they_are() {
        let ranks = [
            "ep0/experts.0.w",
            "ep0/experts.1.w",
            "ep1/experts.2.w",
            "ep1/experts.3.w",
        ];
        let whole = ["experts.0.w", "experts.1.w", "experts.2.w", "experts.3.w"];
        let expected: Vec<String> = whole
            .iter()
            .zip(ranks)
            .map(|(r, c)| format!("{r}={c}"))
            .collect();
        assert_eq!(paired(&[Rule::Exact], &whole, &ranks), expected);
    }

    #[test]
    fn what_is_no_experts_own_is_a_copy_on_every_rank() {
        assert_eq!(
            paired(
                &[Rule::Exact],
                &["gate.weight"],
                &["ep1/gate.weight", "ep0/gate.weight"]
            ),
            ["gate.weight=ep0/gate.weight+ep1/gate.weight"]
        );
        assert_eq!(
            paired(&[Rule::Exact], &["x"], &["dp0/x", "dp1/x"]),
            ["x=dp0/x+dp1/x"]
        );
        let grid = ["dp0_tp0/x", "dp0_tp1/x", "dp1_tp0/x", "dp1_tp1/x"];
        assert_eq!(
            paired(&[Rule::Exact], &["x"], &grid),
            ["x=dp0_tp0/x+dp1_tp0/x+dp0_tp1/x+dp1_tp1/x"]
        );
    }
}
