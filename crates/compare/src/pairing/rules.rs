//! The state of a pairing while rules work on it, and the rules by name.

use super::{
    Leftover, Pair, PairError, Pairing, Turned, exact, fuzzy, layer_stage, leftovers, normalized,
    offset, pattern, plugin,
    ranks::{self, Unit},
    shape,
    sketch::Sketch,
    values,
};
use crate::{
    Settings,
    settings::Rule,
    side::{Item, Side},
};
use std::{
    cell::OnceCell,
    collections::{BTreeSet, HashMap, HashSet},
    hash::Hash,
};
use twinscope_names::{
    name::{Name, Reading},
    onnx, order, prefixes,
};

/// Index of a side in every array of two.
pub(super) const REFERENCE: usize = 0;
pub(super) const CANDIDATE: usize = 1;

/// Tensors of which the first two ranks are read to tell shards from copies.
const SHARDS_LOOKED_AT: usize = 16;

pub(super) fn apply(rule: Rule, board: &mut Board<'_, '_>) -> Result<(), PairError> {
    match rule {
        // Always the first, whatever the order says.
        Rule::Manual => {}
        Rule::LayerStage => layer_stage::pair(board),
        Rule::Exact => exact::pair(board),
        Rule::Normalized => normalized::pair(board),
        Rule::Pattern => pattern::pair(board)?,
        Rule::Plugin => plugin::pair(board)?,
        Rule::Fuzzy => fuzzy::pair(board),
        Rule::Shape => shape::pair(board),
        Rule::Values => values::pair(board),
    }
    Ok(())
}

/// What is paired and what is free.
pub(super) struct Board<'a, 's> {
    pub(super) sides: [&'a Side<'s>; 2],
    pub(super) settings: &'a Settings,
    /// Candidate layer minus reference layer.
    pub(super) offset: i64,
    free: [Vec<bool>; 2],
    counts: [Counts; 2],
    units: [Vec<Unit>; 2],
    reading: OnceCell<[NamesOfSide; 2]>,
    /// The side that calls something a gate, where the other calls nothing so.
    gated: OnceCell<Option<usize>>,
    /// Both sides are cut alike, and one lacks ranks that the other has.
    lacks_ranks: bool,
    pub(super) pairs: Vec<Pair>,
}

impl<'a, 's> Board<'a, 's> {
    pub(super) fn new(sides: [&'a Side<'s>; 2], settings: &'a Settings) -> Self {
        let free = sides.map(|side| vec![true; side.items().len()]);
        let units = [Vec::new(), Vec::new()];
        let mut board = Self {
            sides,
            settings,
            offset: 0,
            free,
            counts: [Counts::None; 2],
            units,
            reading: OnceCell::new(),
            gated: OnceCell::new(),
            lacks_ranks: false,
            pairs: Vec::new(),
        };
        board.regroup();
        board.counts = Counts::of([REFERENCE, CANDIDATE].map(|side| &*board.units[side]));
        if board.counts != [Counts::None; 2] {
            board.regroup();
        }
        board.lacks_ranks = board.lacks_ranks();
        board
    }

    /// Whether both sides hold shards of the same sizes, but not of the same ranks: a rank that was not recorded, not another way to cut.
    /// Replicas of whole tensors look alike by their shapes, so the values of the first two ranks are asked.
    fn lacks_ranks(&self) -> bool {
        let ranks = [REFERENCE, CANDIDATE].map(|side| {
            self.units[side]
                .iter()
                .flat_map(|unit| unit.ranks.iter().copied())
                .collect::<BTreeSet<u64>>()
        });
        if ranks.iter().any(BTreeSet::is_empty)
            || ranks[REFERENCE] == ranks[CANDIDATE]
            || ranks[REFERENCE].is_disjoint(&ranks[CANDIDATE])
        {
            return false;
        }
        let both = self
            .unique(|side, unit| Some((self.name(side, unit).layer, self.name(side, unit).key())));
        let alike = |(r, c): &(usize, usize)| {
            let dims = |side: usize, unit: usize| {
                self.units[side][unit]
                    .items
                    .iter()
                    .map(move |item| self.items(side)[*item].shape.dims())
            };
            let first = dims(REFERENCE, *r).next();
            dims(REFERENCE, *r)
                .chain(dims(CANDIDATE, *c))
                .all(|dims| Some(dims) == first)
        };
        if both.is_empty() || !both.iter().all(alike) {
            return false;
        }
        let side = if ranks[REFERENCE].len() > ranks[CANDIDATE].len() {
            REFERENCE
        } else {
            CANDIDATE
        };
        let unit = |(r, c): &(usize, usize)| if side == REFERENCE { *r } else { *c };
        let sketch = |item: usize| {
            self.sides[side]
                .view(item)
                .ok()
                .and_then(|view| Sketch::of(&view))
                .filter(Sketch::tells)
        };
        let same = |unit: usize| match self.units[side][unit].items.as_slice() {
            [one, other, ..] => Some(sketch(*one)? == sketch(*other)?),
            _ => None,
        };
        let told: Vec<bool> = both
            .iter()
            .filter_map(|pair| same(unit(pair)))
            .take(SHARDS_LOOKED_AT)
            .collect();
        told.iter().filter(|same| !**same).count() * 2 > told.len()
    }

    /// The layer offset, from all names at once: what an earlier rule pairs must not change what a later one sees in the numbers.
    pub(super) fn read_layers(&mut self) {
        self.offset = offset::find(self);
    }

    pub(super) fn items(&self, side: usize) -> &'a [Item] {
        self.sides[side].items()
    }

    pub(super) fn free_items(&self, side: usize) -> Vec<usize> {
        (0..self.free[side].len())
            .filter(|item| self.free[side][*item])
            .collect()
    }

    pub(super) fn unit(&self, side: usize, unit: usize) -> &Unit {
        &self.units[side][unit]
    }

    pub(super) fn all_units(&self, side: usize) -> std::ops::Range<usize> {
        0..self.units[side].len()
    }

    /// The units none of whose items is paired.
    pub(super) fn free_units(&self, side: usize) -> Vec<usize> {
        (0..self.units[side].len())
            .filter(|unit| self.is_free(side, *unit))
            .collect()
    }

    fn is_free(&self, side: usize, unit: usize) -> bool {
        self.units[side][unit]
            .items
            .iter()
            .all(|item| self.free[side][*item])
    }

    /// Whether only their order tells tensors of one name apart.
    pub(super) fn is_sequence(&self) -> bool {
        self.counts == [Counts::Order; 2]
    }

    /// The unit's only item, when it has no shards.
    pub(super) fn single(&self, side: usize, unit: usize) -> Option<&'a Item> {
        match self.units[side][unit].items.as_slice() {
            [item] => Some(&self.items(side)[*item]),
            _ => None,
        }
    }

    /// How many elements the unit's items have together.
    pub(super) fn elements(&self, side: usize, unit: usize) -> Option<u64> {
        self.units[side][unit]
            .items
            .iter()
            .try_fold(0u64, |sum, item| {
                sum.checked_add(self.items(side)[*item].shape.elements()?)
            })
    }

    /// The unit's name, understood.
    pub(super) fn name(&self, side: usize, unit: usize) -> &Name {
        let unit = &self.units[side][unit];
        unit.parsed.get_or_init(|| {
            let names = &self.readings()[side];
            let name = names.results.get(&unit.name).unwrap_or(&unit.name);
            Name::parse(
                name.strip_prefix(names.prefix.as_str()).unwrap_or(name),
                names.reading,
            )
        })
    }

    fn readings(&self) -> &[NamesOfSide; 2] {
        self.reading.get_or_init(|| {
            let results = [REFERENCE, CANDIDATE]
                .map(|side| onnx::results(self.units[side].iter().map(|unit| unit.name.as_str())));
            let names = [REFERENCE, CANDIDATE].map(|side| {
                let name =
                    |unit: &'_ Unit| results[side].get(&unit.name).unwrap_or(&unit.name).clone();
                self.units[side].iter().map(name).collect::<Vec<String>>()
            });
            let prefixes = prefixes::of([&names[REFERENCE], &names[CANDIDATE]]);
            let mut readings = [REFERENCE, CANDIDATE].map(|side| {
                let prefix = prefixes[side].as_str();
                Reading::of(
                    self.items(side)
                        .iter()
                        .map(|item| item.name.strip_prefix(prefix).unwrap_or(&item.name)),
                )
            });
            let two_stacks = readings.iter().any(|reading| reading.two_stacks);
            readings
                .iter_mut()
                .for_each(|reading| *reading = reading.with_stacks(two_stacks));
            let mut sides = readings.into_iter().zip(prefixes).zip(results);
            [REFERENCE, CANDIDATE].map(|_| {
                let ((reading, prefix), results) = sides.next().expect("two of each");
                NamesOfSide {
                    reading,
                    prefix,
                    results,
                }
            })
        })
    }

    /// Whether names are read without what nearly all of a side begin with.
    pub(super) fn is_stripped(&self) -> bool {
        self.readings().iter().any(|names| !names.prefix.is_empty())
    }

    /// Another name, understood as this side's are.
    pub(super) fn read_name(&self, side: usize, name: &str) -> Name {
        let reading = self.readings()[side].reading;
        if self.counts[side] != Counts::None {
            return Name::parse(&order::without_count(name), reading);
        }
        Name::parse(name, reading)
    }

    /// The layer of a name, as the candidate counts them.
    pub(super) fn layer(&self, side: usize, unit: usize) -> Option<i128> {
        self.layer_of(side, self.name(side, unit))
    }

    pub(super) fn layer_of(&self, side: usize, name: &Name) -> Option<i128> {
        let layer = i128::from(name.layer?);
        Some(if side == REFERENCE {
            layer + i128::from(self.offset)
        } else {
            layer
        })
    }

    /// Pairs units: rank by rank where both sides have as many ranks that hold as much of the same dimensions, else everything of one
    /// against everything of the other, as where one side is cut along another axis.
    pub(super) fn take(
        &mut self,
        reference: &[usize],
        candidate: &[usize],
        rule: Rule,
        score: f64,
    ) {
        debug_assert!(
            reference.iter().all(|unit| self.is_free(REFERENCE, *unit))
                && candidate.iter().all(|unit| self.is_free(CANDIDATE, *unit))
        );
        let all = || {
            reference
                .iter()
                .map(|unit| &self.units[REFERENCE][*unit])
                .chain(candidate.iter().map(|unit| &self.units[CANDIDATE][*unit]))
        };
        let ranks = all().next().map_or(1, |unit| unit.items.len());
        let cut_alike = || match (reference, candidate) {
            ([r], [c]) => {
                let dims = |side: usize, item: usize| {
                    self.items(side)[item]
                        .shape
                        .dims()
                        .iter()
                        .copied()
                        .filter(|dim| *dim != 1)
                };
                let items = self.units[REFERENCE][*r]
                    .items
                    .iter()
                    .zip(&self.units[CANDIDATE][*c].items);
                items
                    .into_iter()
                    .all(|(r, c)| dims(REFERENCE, *r).eq(dims(CANDIDATE, *c)))
            }
            // The ranks of a fused tensor and of its parts are cut by whole heads.
            _ => true,
        };
        if let ([r], [c]) = (reference, candidate)
            && self.lacks_ranks
        {
            let [left, right] =
                [(REFERENCE, *r), (CANDIDATE, *c)].map(|(side, unit)| &self.units[side][unit]);
            let both: Vec<(usize, usize)> = (left.ranks.iter().zip(&left.items))
                .filter_map(|(rank, item)| {
                    Some((
                        *item,
                        right.items[right.ranks.iter().position(|other| other == rank)?],
                    ))
                })
                .collect();
            // What is left of them has no partner.
            if !both.is_empty() {
                return both
                    .into_iter()
                    .for_each(|(r, c)| self.take_items(vec![r], vec![c], rule, score));
            }
        }
        let rank_by_rank = ranks > 1 && all().all(|unit| unit.items.len() == ranks) && cut_alike();
        let of = |side: usize, units: &[usize], rank: Option<usize>| -> Vec<usize> {
            units
                .iter()
                .flat_map(|unit| {
                    let items = &self.units[side][*unit].items;
                    rank.map_or(items.as_slice(), |rank| &items[rank..=rank])
                })
                .copied()
                .collect()
        };
        let parts: Vec<Option<usize>> = if rank_by_rank {
            (0..ranks).map(Some).collect()
        } else {
            vec![None]
        };
        let found: Vec<_> = parts
            .into_iter()
            .map(|rank| {
                (
                    of(REFERENCE, reference, rank),
                    of(CANDIDATE, candidate, rank),
                )
            })
            .collect();
        found
            .into_iter()
            .for_each(|(reference, candidate)| self.take_items(reference, candidate, rule, score));
    }

    /// Pairs items. Call [`Board::regroup`] after the last, when they may be shards.
    pub(super) fn take_items(
        &mut self,
        reference: Vec<usize>,
        candidate: Vec<usize>,
        rule: Rule,
        score: f64,
    ) {
        reference
            .iter()
            .for_each(|item| self.free[REFERENCE][*item] = false);
        candidate
            .iter()
            .for_each(|item| self.free[CANDIDATE][*item] = false);
        self.pairs.push(Pair {
            reference,
            candidate,
            rule,
            score,
            turned: Turned::No,
        });
    }

    /// Units anew, from the items that are still free.
    pub(super) fn regroup(&mut self) {
        self.units = [REFERENCE, CANDIDATE]
            .map(|side| ranks::units(self.items(side), |item| self.free[side][item]));
        for (units, _) in self
            .units
            .iter_mut()
            .zip(self.counts)
            .filter(|(_, counts)| *counts != Counts::None)
        {
            units
                .iter_mut()
                .for_each(|unit| unit.name = order::without_count(&unit.name));
        }
    }

    /// The free units whose key is equal and, on each side, nobody else's, in the reference's order. A key of `None` takes no part.
    pub(super) fn unique<K: Hash + Eq>(
        &self,
        key: impl Fn(usize, usize) -> Option<K>,
    ) -> Vec<(usize, usize)> {
        let free = [REFERENCE, CANDIDATE].map(|side| self.free_units(side));
        let mut places: HashMap<K, [Spot; 2]> = HashMap::with_capacity(free[REFERENCE].len());
        for (side, units) in free.into_iter().enumerate() {
            for unit in units {
                if let Some(key) = key(side, unit) {
                    let spot = &mut places.entry(key).or_default()[side];
                    *spot = if *spot == Spot::Empty {
                        Spot::One(unit)
                    } else {
                        Spot::Many
                    };
                }
            }
        }
        let pair = |spots: [Spot; 2]| match spots {
            [Spot::One(reference), Spot::One(candidate)] => Some((reference, candidate)),
            _ => None,
        };
        let mut found: Vec<(usize, usize)> = places.into_values().filter_map(pair).collect();
        // The map's order is not ours: the result must be the same every time.
        found.sort_unstable();
        found
    }

    pub(super) fn take_all(&mut self, found: Vec<(usize, usize)>, rule: Rule, score: f64) {
        found
            .into_iter()
            .for_each(|(reference, candidate)| self.take(&[reference], &[candidate], rule, score));
    }

    /// Whether two names say that they are not one tensor: another layer, another number behind the same word, or two different known parts.
    pub(super) fn contradict(&self, reference: usize, candidate: usize) -> bool {
        let (r, c) = (
            self.name(REFERENCE, reference),
            self.name(CANDIDATE, candidate),
        );
        let layers = r.layer.is_some()
            && c.layer.is_some()
            && self.layer(REFERENCE, reference) != self.layer(CANDIDATE, candidate);
        let stages = r.stage.is_some() && c.stage.is_some() && r.stage != c.stage;
        let params = r.param.is_some() && c.param.is_some() && r.param != c.param;
        layers || stages || params || other_numbers(&r.rest, &c.rest)
    }

    /// Whether one is an `up` and the other both gate and up in one (Megatron's `linear_fc1`, where nothing is called a gate): with the gate
    /// missing, half of it would be compared with nothing.
    pub(super) fn is_half(&self, reference: usize, candidate: usize) -> bool {
        let is_up = |side: usize, unit: usize| self.name(side, unit).stage == Some("mlp_up");
        if !is_up(REFERENCE, reference) || !is_up(CANDIDATE, candidate) {
            return false;
        }
        let gate = |side: usize| {
            ranks::units(self.items(side), |_| true)
                .iter()
                .any(|unit| self.read_name(side, &unit.name).stage == Some("mlp_gate"))
        };
        let gated = *self
            .gated
            .get_or_init(|| match [gate(REFERENCE), gate(CANDIDATE)] {
                [true, false] => Some(REFERENCE),
                [false, true] => Some(CANDIDATE),
                _ => None,
            });
        let elements = [
            self.elements(REFERENCE, reference),
            self.elements(CANDIDATE, candidate),
        ];
        gated.is_some_and(|side| {
            elements[side]
                .is_some_and(|up| up > 0 && up.checked_mul(2) == elements[CANDIDATE - side])
        })
    }

    /// Everything, exactly once.
    pub(super) fn finish(mut self) -> Pairing {
        self.regroup();
        let [only_reference, only_candidate]: [Vec<Leftover>; 2] = leftovers::of(&self);
        let mut pairs = self.pairs;
        // Ranks run at the same time: their shards of one tensor come together, where the first of them is.
        let mut places: Vec<(usize, usize)> = (0..self.sides[REFERENCE].items().len())
            .map(|item| (item, 0))
            .collect();
        for unit in ranks::units(self.sides[REFERENCE].items(), |_| true) {
            let first = unit.items.iter().copied().min().unwrap_or_default();
            unit.items
                .iter()
                .enumerate()
                .for_each(|(rank, item)| places[*item] = (first, rank));
        }
        let place = |pair: &Pair| pair.reference.iter().map(|item| places[*item]).min();
        pairs.sort_by_cached_key(|pair| (place(pair), pair.candidate.iter().min().copied()));
        Pairing {
            pairs,
            only_reference,
            only_candidate,
            layer_offset: self.offset,
            left_out: Default::default(),
        }
    }
}

/// Whether the same word is followed by other numbers: `blocks.0` and `blocks.1` of one stage.
fn other_numbers(one: &[String], other: &[String]) -> bool {
    let numbered = |words: &[String]| -> HashMap<String, HashSet<String>> {
        let mut found: HashMap<String, HashSet<String>> = HashMap::new();
        for two in words
            .windows(2)
            .filter(|two| two[1].bytes().all(|byte| byte.is_ascii_digit()))
        {
            found
                .entry(two[0].clone())
                .or_default()
                .insert(two[1].clone());
        }
        found
    };
    let theirs = numbered(other);
    numbered(one).iter().any(|(word, numbers)| {
        theirs
            .get(word)
            .is_some_and(|theirs| theirs.is_disjoint(numbers))
    })
}

/// How the names of a side are read.
struct NamesOfSide {
    reading: Reading,
    /// What they are read without.
    prefix: String,
    /// Names that are those of a module's result, and the module.
    results: HashMap<String, String>,
}

/// What the numbers are that the names of a side begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counts {
    /// None, or layers.
    None,
    /// They count the tensors and say nothing else, and another run may have counted otherwise: the names are as good without.
    Superfluous,
    /// The same, but without them several tensors have one name: only their order tells them apart.
    Order,
}

impl Counts {
    fn of(units: [&[Unit]; 2]) -> [Self; 2] {
        let counted = units.map(|units| {
            order::Names::of(units.iter().map(|unit| unit.name.as_str())) == order::Names::Counted
        });
        if counted == [false; 2] {
            return [Self::None; 2];
        }
        let words = units.map(|units| {
            units
                .iter()
                .map(|unit| order::without_count(&unit.name))
                .collect::<HashSet<String>>()
        });
        let names = units.map(|units| {
            units
                .iter()
                .map(|unit| unit.name.as_str())
                .collect::<HashSet<&str>>()
        });
        let told_apart = [0, 1].map(|side| words[side].len() == units[side].len());
        if counted == [true, true] && told_apart.contains(&false) {
            // Where all of one are among the other's, both have counted alike; one word alone, or numbers with gaps, are layers.
            let alike = names[0].is_subset(&names[1]) || names[1].is_subset(&names[0]);
            let in_order = units
                .iter()
                .all(|units| order::is_gapless(units.iter().map(|unit| unit.name.as_str())));
            let order = !alike && in_order && words.iter().all(|words| words.len() > 1);
            return [if order { Self::Order } else { Self::None }; 2];
        }
        [0, 1].map(|side| {
            if counted[side] && told_apart[side] {
                Self::Superfluous
            } else {
                Self::None
            }
        })
    }
}

/// Who has a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Spot {
    #[default]
    Empty,
    One(usize),
    Many,
}
