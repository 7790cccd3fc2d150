//! Quantised in blocks: within each block the candidate lies on a few levels, and it is the level next to the reference.
//!
//! Blocks are the whole tensor, rows, equal parts of rows and columns; the largest that works is said, because parts of a quantised block are
//! on the same levels. Levels are equally spaced (2 to 8 bits, with or without an offset), a small float's times a scale, or nf4's.

use super::{
    levels::{Kind, Levels},
    sampling::{Near, spread},
};
use crate::{Case, Class, Examined, Explanation, Hypothesis, case::Predicted};
use std::borrow::Cow;
use twinscope_compare::noise::unit_roundoff;
use twinscope_report::{CauseKind, facts};

#[derive(Debug)]
pub(super) struct Quantized;

const LEAST_BLOCK: usize = 8;
const LEAST_VALUES: usize = 32;
/// Blocks that are looked at before all are.
const SAMPLED_BLOCKS: usize = 12;
/// Values of one block that find its levels.
const SAMPLED_VALUES: usize = 1 << 10;
/// Ways that look right on a few blocks and are tried on all.
const MOST_WAYS: usize = 4;
/// Of the reference's values at most this share may lie on the candidate's levels.
const BY_CHANCE: f64 = 0.5;

impl Hypothesis for Quantized {
    fn name(&self) -> &'static str {
        "quantized"
    }

    fn examine(&self, case: &Case<'_>) -> Examined {
        if case.dims.is_empty() || case.reference.len() < LEAST_VALUES {
            return Err("too few values".into());
        }
        let Some(unit) = unit_roundoff(case.dtypes[1]) else {
            return Err("whole numbers".into());
        };
        let ways = Blocks::ways(case.dims)
            .into_iter()
            .flat_map(|blocks| Kind::ALL.map(|kind| (blocks.clone(), kind)));
        let mut why = "no blocks of the candidate lie on the levels next to the reference".into();
        let near = Near::of(case);
        for (blocks, kind) in ways
            .filter(|(blocks, kind)| blocks.look_quantized(case, *kind, unit, near))
            .take(MOST_WAYS)
        {
            match quantized(case, &blocks, kind, unit, near) {
                Ok(explanation) => return Ok(vec![explanation]),
                Err(other) => why = other,
            }
        }
        Err(why)
    }
}

fn quantized(
    case: &Case<'_>,
    blocks: &Blocks,
    kind: Kind,
    unit: f64,
    near: Near,
) -> Result<Explanation, Cow<'static, str>> {
    if are_repeated(case, blocks) {
        return Err(
            "the reference has as few different values: they are repeated, not rounded".into(),
        );
    }
    let (mut beyond, mut whole, mut range, mut by_chance, mut zero) =
        (0.0, 0.0, 0f64, 0usize, true);
    for block in 0..blocks.count {
        let values: Vec<f64> = blocks
            .members(block)
            .map(|flat| case.candidate[flat])
            .collect();
        let Ok(levels) = kind.levels(&values, unit) else {
            return Err("not every block of the candidate lies on a few levels".into());
        };
        for flat in blocks.members(block) {
            let (r, c) = (case.reference[flat], case.candidate[flat]);
            whole += (c - r) * (c - r);
            let Some(levels) = levels else { continue };
            by_chance += usize::from(levels.holds(r));
            if !is_next(levels, near, r, c) {
                beyond += (c - r) * (c - r);
            }
        }
        if let Some(levels) = levels {
            range = range.max(levels.range().unwrap_or(0.0));
            zero &= levels.has_zero();
        }
    }
    if by_chance as f64 > BY_CHANCE * case.reference.len() as f64 {
        return Err("the reference lies on the same levels".into());
    }
    let explained = super::sampling::share(beyond, whole).max(0.0);
    if explained < 0.5 {
        return Err("the candidate lies on levels, but not on those next to the reference".into());
    }
    let bits = (range + 1.0).log2().ceil();
    let (format, bits) = match kind {
        Kind::Even => (
            format!("{bits} bits{}", if zero { "" } else { " with an offset" }),
            Some(bits),
        ),
        Kind::Float(grid) => (format!("{} with a scale", grid.name), None),
        Kind::Table => ("nf4".to_owned(), Some(4.0)),
    };
    Ok(Explanation {
        kind: CauseKind::Quantized,
        text: format!(
            "candidate = reference quantised to {format}, {}",
            blocks.said
        ),
        details: facts::Quantized::Levels {
            bits,
            format,
            block: blocks.size,
            axis: blocks.axis,
            zero_is_a_level: zero,
            blocks: blocks.count,
        }
        .into(),
        class: Class::Mechanism,
        freedom: blocks.count,
        predicted: Predicted::Share {
            explained,
            proven: beyond == 0.0,
        },
    })
}

/// Whether the reference has few different values too, and as many of them: a map that was enlarged by repeating its values.
fn are_repeated(case: &Case<'_>, blocks: &Blocks) -> bool {
    let different = |side: &[f64], block: usize| {
        let mut values: Vec<u64> = blocks
            .members(block)
            .take(SAMPLED_VALUES)
            .map(|flat| side[flat].to_bits())
            .collect();
        let all = values.len();
        values.sort_unstable();
        values.dedup();
        (values.len(), all)
    };
    let (mut reference, mut candidate, mut all) = (0, 0, 0);
    for block in spread(blocks.count, SAMPLED_BLOCKS) {
        reference += different(case.reference, block).0;
        candidate += different(case.candidate, block).0;
        all += different(case.candidate, block).1;
    }
    10 * reference <= 6 * all && 10 * candidate >= 9 * reference
}

/// As near as the nearest level, but for what noise made of a tie.
fn is_next(levels: Levels, near: Near, r: f64, c: f64) -> bool {
    (c - r).abs() <= (levels.nearest(r) - r).abs() + near.allowed(r)
}

/// One way to cut a tensor into blocks: `size` elements, `step` apart.
#[derive(Clone, Debug)]
struct Blocks {
    size: usize,
    step: usize,
    count: usize,
    axis: Option<usize>,
    said: String,
}

impl Blocks {
    /// Large blocks first.
    fn ways(dims: &[usize]) -> Vec<Self> {
        let (count, row) = (dims.iter().product::<usize>(), dims[dims.len() - 1]);
        let last = dims.len() - 1;
        let mut ways = vec![Self {
            size: count,
            step: 1,
            count: 1,
            axis: None,
            said: "one scale for all".to_owned(),
        }];
        if row > 1 && count / row >= LEAST_BLOCK {
            ways.push(Self {
                size: count / row,
                step: row,
                count: row,
                axis: Some(0),
                said: format!("one scale per index of dim {last}"),
            });
        }
        for parts in 1..=row / LEAST_BLOCK {
            if row % parts == 0 && count > row / parts {
                let size = row / parts;
                let said = if parts == 1 {
                    format!("one scale per row of {row}")
                } else {
                    format!("in blocks of {size} along dim {last}")
                };
                ways.push(Self {
                    size,
                    step: 1,
                    count: count / size,
                    axis: Some(last),
                    said,
                });
            }
        }
        ways
    }

    fn members(&self, block: usize) -> impl Iterator<Item = usize> {
        let (start, step) = if self.step == 1 {
            (block * self.size, 1)
        } else {
            (block, self.step)
        };
        (0..self.size).map(move |at| start + at * step)
    }

    /// On a few blocks, and a few values of each: on levels, and mostly on the one next to the reference.
    fn look_quantized(&self, case: &Case<'_>, kind: Kind, unit: f64, near: Near) -> bool {
        let (mut telling, mut next, mut looked_at) = (0, 0, 0);
        for block in spread(self.count, SAMPLED_BLOCKS) {
            let mut flats: Vec<usize> = self.sampled(block).collect();
            // A scale is made of the largest value: it must be among them.
            if !matches!(kind, Kind::Even) && flats.len() < self.size {
                flats.extend(self.members(block).max_by(|a, b| {
                    case.candidate[*a]
                        .abs()
                        .total_cmp(&case.candidate[*b].abs())
                }));
            }
            let values: Vec<f64> = flats.iter().map(|flat| case.candidate[*flat]).collect();
            let Ok(levels) = kind.levels(&values, unit) else {
                return false;
            };
            let Some(levels) = levels else { continue };
            telling += 1;
            looked_at += flats.len();
            next += flats
                .iter()
                .filter(|flat| {
                    is_next(levels, near, case.reference[**flat], case.candidate[**flat])
                })
                .count();
        }
        2 * telling >= self.count.min(SAMPLED_BLOCKS) && 10 * next >= 9 * looked_at
    }

    fn sampled(&self, block: usize) -> impl Iterator<Item = usize> {
        let (start, step) = if self.step == 1 {
            (block * self.size, 1)
        } else {
            (block, self.step)
        };
        spread(self.size, SAMPLED_VALUES).map(move |at| start + at * step)
    }
}

#[cfg(test)]
mod tests {
    use super::super::grid::CODES;
    use crate::testing::{examine_pair, examine_pair_bf16, normal, proven};
    use proptest::prelude::*;
    use twinscope_report::CauseKind;

    /// Symmetric, from the largest value; or from the smallest to the largest.
    fn quantise(values: &[f64], block: usize, bits: u32, symmetric: bool) -> Vec<f64> {
        let levels = f64::from((1u32 << bits) - 1);
        let one = |block: &[f64]| -> Vec<f64> {
            let (low, high) = block
                .iter()
                .fold((f64::MAX, f64::MIN), |(low, high), value| {
                    (low.min(*value), high.max(*value))
                });
            if symmetric {
                let half = f64::from((1u32 << (bits - 1)) - 1);
                let step = low.abs().max(high) / half;
                block
                    .iter()
                    .map(|value| (value / step).round() * step)
                    .collect()
            } else {
                let step = (high - low) / levels;
                block
                    .iter()
                    .map(|value| low + ((value - low) / step).round() * step)
                    .collect()
            }
        };
        values.chunks(block).flat_map(one).collect()
    }

    #[test]
    fn bits_and_blocks_are_said() {
        let reference = normal(22 * 48, 1);
        let found = examine_pair(
            &[2, 11, 48],
            reference.clone(),
            quantise(&reference, 16, 4, true),
        );
        assert_eq!(proven(&found), Some("quantized"));
        assert_eq!(
            found.found[0].explanation.text,
            "candidate = reference quantised to 4 bits, in blocks of 16 along dim 2"
        );
        let found = examine_pair(
            &[2, 11, 48],
            reference.clone(),
            quantise(&reference, 22 * 48, 8, true),
        );
        assert_eq!(proven(&found), Some("quantized"));
        assert_eq!(
            found.found[0].explanation.text,
            "candidate = reference quantised to 8 bits, one scale for all"
        );
    }

    #[test]
    fn small_floats_with_a_scale_are_told_by_their_levels() {
        let reference = normal(32 * 64, 1);
        for grid in CODES.into_iter().take(3) {
            let one = |block: &[f64]| -> Vec<f64> {
                let scale =
                    block.iter().fold(0f64, |size, value| size.max(value.abs())) / grid.largest();
                block
                    .iter()
                    .map(|value| grid.saturate(value / scale) * scale)
                    .collect()
            };
            let found = examine_pair(
                &[32, 64],
                reference.clone(),
                reference.chunks(32).flat_map(one).collect(),
            );
            assert_eq!(proven(&found), Some("quantized"), "{grid:?}");
            assert_eq!(
                found.found[0].explanation.details.json()["format"],
                format!("{} with a scale", grid.name)
            );
            assert_eq!(found.found[0].explanation.details.json()["block"], 32);
        }
    }

    #[test]
    fn four_bits_are_seen_through_bf16() {
        let reference = normal(22 * 48, 1);
        let found = examine_pair_bf16(
            &[22, 48],
            reference.clone(),
            quantise(&reference, 24, 3, true),
        );
        proven(&found);
        assert!(
            found
                .found
                .iter()
                .any(|found| found.explanation.kind == CauseKind::Quantized && found.score.proven)
        );
    }

    #[test]
    fn levels_far_from_the_reference_and_plain_values_are_not_explained() {
        let reference = normal(22 * 48, 1);
        for candidate in [
            normal(22 * 48, 2),
            quantise(&normal(22 * 48, 2), 16, 4, true),
            reference.iter().map(|r| r.max(0.0)).collect(),
        ] {
            let found = examine_pair(&[22, 48], reference.clone(), candidate);
            assert!(
                found
                    .found
                    .iter()
                    .all(|found| found.explanation.kind != CauseKind::Quantized
                        || !found.score.proven)
            );
        }
    }

    #[test]
    fn four_bits_with_an_offset_are_found_in_bf16() {
        for seed in 1..8 {
            let reference = normal(24 * 48, seed);
            let found = examine_pair_bf16(
                &[24, 48],
                reference.clone(),
                quantise(&reference, 16, 4, false),
            );
            assert_eq!(proven(&found), Some("quantized"), "seed {seed}");
            assert_eq!(found.found[0].explanation.details.json()["block"], 16);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn any_bits_blocks_and_offset_are_found(rows in 3usize..12, parts in 1usize..4, size in 4usize..10, bits in 2u32..9, symmetric: bool, seed in 0u64..1000) {
            let block = size * 8;
            let reference: Vec<f64> = normal(rows * parts * block, seed).iter().map(|r| r + 0.7).collect();
            let candidate = quantise(&reference, block, bits, symmetric);
            let found = examine_pair(&[rows, parts * block], reference, candidate);
            let best = found.found.iter().find(|found| found.explanation.kind == CauseKind::Quantized).expect("it is found");
            prop_assert!(best.score.proven);
            prop_assert_eq!(best.explanation.details.json()["block"].as_u64(), Some(block as u64));
            let said = best.explanation.details.json()["bits"].as_f64().unwrap();
            prop_assert!(said <= f64::from(bits) && (symmetric || said == f64::from(bits)), "{said} of {bits}");
        }

        #[test]
        fn unrelated_values_have_no_levels(rows in 2usize..12, columns in 8usize..70, seed in 0u64..1000) {
            let count = rows * columns;
            let found = examine_pair(&[rows, columns], normal(count, seed), normal(count, seed + 5));
            prop_assert!(found.found.iter().all(|found| found.explanation.kind != CauseKind::Quantized));
        }
    }
}
