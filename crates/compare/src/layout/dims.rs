//! SGLang's dims strings: `b s[cp:zigzag,sp] 1 h[tp] (heads*d) # ep:replicated dp:=moe_dp`.
//!
//! Names of dimensions in order; in brackets the parallel axes that shard one, the outermost first, with `zigzag` or `natural` order
//! and `partial` sums; `1` is a dimension of one element; `(a*b)` is two dimensions stored as one. After `#` the axes whose ranks all
//! hold the same.

use super::{KeepReason, Order, Step, Which, permute};
use permute::Atom;
use std::{collections::HashMap, str::FromStr};

/// A parsed dims string.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dims {
    dims: Vec<Dim>,
    replicated: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Dim {
    /// None for `1`, several for stored-as-one.
    names: Vec<String>,
    sharded: Vec<Sharding>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Sharding {
    axis: String,
    zigzag: bool,
    partial: bool,
}

/// What is wrong with a dims string.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DimsError {
    #[error("a dims string names at least one dimension")]
    Empty,
    #[error("`{token}` is not a dimension")]
    Token { token: String },
    #[error("`{name}` is there twice")]
    Twice { name: String },
    #[error(
        "`{word}` is not a parallel axis: tp, cp, ep, sp, dp, etp, edp, pp, attn_tp, attn_dp, moe_tp, moe_ep, moe_dp"
    )]
    Axis { word: String },
    #[error("`{word}` is neither sharded, partial, zigzag nor natural")]
    Qualifier { word: String },
    #[error("`{axis}` is both sharded and replicated")]
    Both { axis: String },
    #[error("`{token}` after # is neither AXIS:replicated nor dp:=NAME")]
    Comment { token: String },
}

const AXES: [&str; 13] = [
    "tp", "cp", "ep", "sp", "dp", "etp", "edp", "pp", "attn_tp", "attn_dp", "moe_tp", "moe_ep",
    "moe_dp",
];

impl FromStr for Dims {
    type Err = DimsError;

    fn from_str(text: &str) -> Result<Self, DimsError> {
        let (shape, comment) = text.split_once('#').unwrap_or((text, ""));
        let mut parsed = Self::default();
        for token in shape.split_whitespace() {
            parsed.dims.push(dim(token)?);
        }
        if parsed.dims.is_empty() {
            return Err(DimsError::Empty);
        }
        let mut names: Vec<&String> = parsed.dims.iter().flat_map(|dim| &dim.names).collect();
        names.sort();
        if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(DimsError::Twice {
                name: pair[0].clone(),
            });
        }
        for token in comment.split_whitespace() {
            if let Some(axis) = token.strip_suffix(":replicated") {
                let axis = known(axis)?;
                if parsed.replicated.contains(&axis) {
                    return Err(DimsError::Twice {
                        name: token.to_owned(),
                    });
                }
                if parsed
                    .dims
                    .iter()
                    .flat_map(|dim| &dim.sharded)
                    .any(|sharding| sharding.axis == axis)
                {
                    return Err(DimsError::Both { axis });
                }
                parsed.replicated.push(axis);
            } else if !token.starts_with("dp:=") {
                return Err(DimsError::Comment {
                    token: token.to_owned(),
                });
            }
        }
        Ok(parsed)
    }
}

fn known(axis: &str) -> Result<String, DimsError> {
    let axis = axis.trim();
    if AXES.contains(&axis) {
        Ok(axis.to_owned())
    } else {
        Err(DimsError::Axis {
            word: axis.to_owned(),
        })
    }
}

fn dim(token: &str) -> Result<Dim, DimsError> {
    let wrong = || DimsError::Token {
        token: token.to_owned(),
    };
    let (names, brackets) = match token.split_once('[') {
        Some((names, rest)) => (names, Some(rest.strip_suffix(']').ok_or_else(wrong)?)),
        None => (token, None),
    };
    let is_name = |name: &str| {
        name.starts_with(|c: char| c.is_alphabetic() || c == '_')
            && name.chars().all(|c| c.is_alphanumeric() || c == '_')
    };
    let names: Vec<String> = match names
        .strip_prefix('(')
        .and_then(|inner| inner.strip_suffix(')'))
    {
        _ if names == "1" => Vec::new(),
        Some(inner) => inner
            .split('*')
            .map(|name| name.trim().to_owned())
            .collect(),
        None => vec![names.to_owned()],
    };
    if !names.iter().all(|name| is_name(name)) || (names.is_empty() && brackets.is_some()) {
        return Err(wrong());
    }
    let sharded = brackets.map_or(Ok(Vec::new()), |inside| {
        inside.split(',').map(sharding).collect()
    })?;
    Ok(Dim { names, sharded })
}

fn sharding(token: &str) -> Result<Sharding, DimsError> {
    let (axis, qualifiers) = token.split_once(':').unwrap_or((token, ""));
    let mut sharding = Sharding {
        axis: known(axis)?,
        zigzag: false,
        partial: false,
    };
    for word in qualifiers
        .split('+')
        .map(str::trim)
        .filter(|word| !word.is_empty())
    {
        match word {
            "zigzag" => sharding.zigzag = true,
            "partial" => sharding.partial = true,
            "natural" | "sharded" => {}
            _ => {
                return Err(DimsError::Qualifier {
                    word: word.to_owned(),
                });
            }
        }
    }
    Ok(sharding)
}

impl Dims {
    /// The steps that make one tensor of `count` parts, as declared; `None` when the declaration does not say how.
    ///
    /// `ranks` are the parallel axes with their sizes, the slowest first.
    pub(super) fn assemble(
        &self,
        side: Which,
        count: usize,
        ranks: &[(String, usize)],
    ) -> Option<Vec<Step>> {
        if count == 1 {
            return Some(Vec::new());
        }
        // What was sharded last is put together first.
        let declared: Vec<(usize, &Sharding)> = self
            .dims
            .iter()
            .enumerate()
            .flat_map(|(axis, dim)| {
                dim.sharded
                    .iter()
                    .rev()
                    .map(move |sharding| (axis, sharding))
            })
            .collect();
        let ranks = match (ranks, declared.as_slice()) {
            ([], []) if !self.replicated.is_empty() => vec![(self.replicated[0].clone(), count)],
            ([], [(_, only)]) => vec![(only.axis.clone(), count)],
            _ => ranks.to_vec(),
        };
        if ranks
            .iter()
            .try_fold(1usize, |product, (_, size)| product.checked_mul(*size))
            != Some(count)
        {
            return None;
        }
        let size_of = |axis: &str| {
            ranks
                .iter()
                .find(|(name, _)| name == axis)
                .map_or(1, |(_, size)| *size)
        };
        let declared: Vec<(usize, &Sharding)> = declared
            .into_iter()
            .filter(|(_, sharding)| size_of(&sharding.axis) > 1)
            .collect();
        let mut steps = Vec::new();
        let kept = part_order(&ranks, &declared);
        if !kept.iter().copied().eq(0..count) {
            let (why, of) = match kept.len() == count {
                true => (KeepReason::Order, Vec::new()),
                false => (KeepReason::Copies, copy_of(&ranks, &declared, &kept)),
            };
            steps.push(Step::Keep {
                side,
                parts: kept,
                of,
                why,
                differ: Vec::new(),
            });
        }
        for (axis, sharding) in declared {
            let parts = size_of(&sharding.axis);
            steps.push(if sharding.partial {
                Step::Sum { side, parts }
            } else {
                Step::Concat { side, axis, parts }
            });
            if sharding.zigzag && !sharding.partial {
                steps.push(Step::Reorder {
                    side,
                    axis,
                    order: Order::Zigzag {
                        ranks: parts as u64,
                    },
                });
            }
        }
        Some(steps)
    }

    /// The steps from the candidate's dimensions to the reference's, by their names; `None` when the names do not tell.
    pub(super) fn line_up(
        &self,
        reference: &[u64],
        candidate: &Dims,
        candidate_dims: &[u64],
    ) -> Option<Vec<Step>> {
        if self.dims.len() != reference.len() || candidate.dims.len() != candidate_dims.len() {
            return None;
        }
        let mut sizes: HashMap<&str, u64> = HashMap::new();
        let sides = || {
            self.dims
                .iter()
                .zip(reference)
                .chain(candidate.dims.iter().zip(candidate_dims))
        };
        for (dim, size) in sides().filter(|(dim, _)| dim.names.len() == 1) {
            if *sizes.entry(&dim.names[0]).or_insert(*size) != *size {
                return None;
            }
        }
        // The one unknown factor of dimensions stored as one.
        for (dim, size) in sides().filter(|(dim, _)| dim.names.len() > 1) {
            let unknown: Vec<&String> = dim
                .names
                .iter()
                .filter(|name| !sizes.contains_key(name.as_str()))
                .collect();
            let product: u64 = dim
                .names
                .iter()
                .filter_map(|name| sizes.get(name.as_str()))
                .product();
            if let [one] = unknown.as_slice() {
                sizes.insert(one, size.checked_div(product)?);
            }
        }
        let place = |dims: &[Dim], shape: &[u64], name: &str| {
            let at = dims
                .iter()
                .position(|dim| dim.names.iter().any(|other| other == name))?;
            Some(shape[..at].iter().filter(|dim| **dim != 1).count())
        };
        let mut atoms = Vec::new();
        let mut names = Vec::new();
        for name in candidate.dims.iter().flat_map(|dim| &dim.names) {
            let size = *sizes.get(name.as_str())?;
            if size == 1 {
                continue;
            }
            let (from, to) = (
                place(&candidate.dims, candidate_dims, name)?,
                place(&self.dims, reference, name)?,
            );
            atoms.push(Atom { from, to, size });
            names.push(name);
        }
        let columns = self
            .dims
            .iter()
            .zip(reference)
            .filter(|(_, size)| **size != 1)
            .map(|(dim, _)| {
                let known = dim
                    .names
                    .iter()
                    .filter(|name| sizes.get(name.as_str()) != Some(&1));
                known
                    .map(|name| names.iter().position(|other| *other == name))
                    .collect::<Option<Vec<usize>>>()
            });
        let columns = columns.collect::<Option<Vec<_>>>()?;
        Some(permute::steps_of(candidate_dims, reference, &atoms, &columns)?.steps)
    }
}

/// Which part comes where, when what is put together first lies closest; ranks of every other axis hold the same, the first is taken.
fn part_order(ranks: &[(String, usize)], declared: &[(usize, &Sharding)]) -> Vec<usize> {
    let step = |axis: &str| {
        let at = ranks.iter().position(|(name, _)| name == axis)?;
        Some((
            ranks[at].1,
            ranks[at + 1..]
                .iter()
                .map(|(_, size)| size)
                .product::<usize>(),
        ))
    };
    let loops: Vec<(usize, usize)> = declared
        .iter()
        .filter_map(|(_, sharding)| step(&sharding.axis))
        .collect();
    loops.iter().fold(vec![0], |inner, (size, step)| {
        (0..*size)
            .flat_map(|at| inner.iter().map(move |part| part + at * step))
            .collect()
    })
}

/// Of every part, the place among the kept ones of that which differs from it only in axes that nothing is sharded by.
fn copy_of(
    ranks: &[(String, usize)],
    declared: &[(usize, &Sharding)],
    kept: &[usize],
) -> Vec<usize> {
    let count: usize = ranks.iter().map(|(_, size)| size).product();
    let original = |part: usize| {
        let (mut rest, mut step, mut first) = (part, 1, 0);
        for (axis, size) in ranks.iter().rev() {
            if declared.iter().any(|(_, sharding)| sharding.axis == *axis) {
                first += rest % size * step;
            }
            (rest, step) = (rest / size, step * size);
        }
        kept.iter().position(|kept| *kept == first).unwrap_or(0)
    };
    (0..count).map(original).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dims(text: &str) -> Dims {
        text.parse()
            .unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn the_grammar_is_sglangs() {
        let parsed = dims("b s[cp:zigzag,sp] 1 (heads*d)[tp:partial] # dp:=moe_dp ep:replicated");
        assert_eq!(parsed.dims.len(), 4);
        assert_eq!(parsed.dims[1].sharded.len(), 2);
        assert!(parsed.dims[1].sharded[0].zigzag && !parsed.dims[1].sharded[1].zigzag);
        assert!(parsed.dims[2].names.is_empty());
        assert_eq!(parsed.dims[3].names, ["heads", "d"]);
        assert!(parsed.dims[3].sharded[0].partial);
        assert_eq!(parsed.replicated, ["ep"]);
        assert_eq!(dims("h[tp:sharded]"), dims("h[tp]"));
        assert_eq!(dims("1 1").dims.len(), 2);
    }

    #[test]
    fn mistakes_are_named() {
        let said = |text: &str| text.parse::<Dims>().unwrap_err();
        assert_eq!(said("  "), DimsError::Empty);
        assert_eq!(said("h h"), DimsError::Twice { name: "h".into() });
        assert_eq!(said("a (a*b)"), DimsError::Twice { name: "a".into() });
        assert_eq!(said("h[xx]"), DimsError::Axis { word: "xx".into() });
        assert_eq!(
            said("h[tp:zig]"),
            DimsError::Qualifier { word: "zig".into() }
        );
        assert_eq!(
            said("h[tp"),
            DimsError::Token {
                token: "h[tp".into()
            }
        );
        assert_eq!(
            said("h[tp] # tp:replicated"),
            DimsError::Both { axis: "tp".into() }
        );
        assert_eq!(
            said("h # ep:replicatd"),
            DimsError::Comment {
                token: "ep:replicatd".into()
            }
        );
        assert!(matches!(
            said("h # ep:replicated ep:replicated"),
            DimsError::Twice { .. }
        ));
    }

    #[test]
    fn a_grid_is_put_together_from_the_inside() {
        let ranks = [("cp".to_owned(), 2), ("tp".to_owned(), 2)];
        let side = Which::Candidate;
        assert_eq!(
            dims("b s[cp:zigzag] h[tp] d")
                .assemble(side, 4, &ranks)
                .unwrap(),
            [
                // cp first here, so its parts are made neighbours.
                Step::Keep {
                    side,
                    parts: vec![0, 2, 1, 3],
                    of: vec![],
                    why: KeepReason::Order,
                    differ: Vec::new()
                },
                Step::Concat {
                    side,
                    axis: 1,
                    parts: 2
                },
                Step::Reorder {
                    side,
                    axis: 1,
                    order: Order::Zigzag { ranks: 2 }
                },
                Step::Concat {
                    side,
                    axis: 2,
                    parts: 2
                },
            ]
        );
        assert_eq!(
            dims("t h[tp:partial] # cp:replicated")
                .assemble(side, 4, &ranks)
                .unwrap(),
            [
                Step::Keep {
                    side,
                    parts: vec![0, 1],
                    of: vec![0, 1, 0, 1],
                    why: KeepReason::Copies,
                    differ: Vec::new()
                },
                Step::Sum { side, parts: 2 }
            ]
        );
        assert_eq!(
            dims("t h # tp:replicated").assemble(side, 4, &[]).unwrap(),
            [Step::Keep {
                side,
                parts: vec![0],
                of: vec![0; 4],
                why: KeepReason::Copies,
                differ: Vec::new()
            }]
        );
        assert_eq!(dims("t h").assemble(side, 4, &[]), None);
    }

    #[test]
    fn names_say_what_goes_where() {
        let steps = dims("b h s d")
            .line_up(&[2, 8, 8, 4], &dims("s 1 b (h*d)"), &[8, 1, 2, 32])
            .unwrap();
        assert_eq!(
            steps,
            [
                Step::Squeeze { axis: 1 },
                Step::Split {
                    axis: 2,
                    sizes: vec![8, 4]
                },
                Step::Permute {
                    order: vec![1, 2, 0, 3]
                }
            ]
        );
        assert_eq!(
            dims("t h").line_up(&[16, 4], &dims("b s h"), &[2, 8, 4]),
            None
        );
    }
}
