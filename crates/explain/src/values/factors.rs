//! One factor per group: what the hypotheses of channels and rows share.

use super::groups::{Groups, Left, promising, refusal};
use crate::{Case, array::median};

/// Factors fitted to the groups of a grouping.
#[derive(Debug)]
pub(super) struct Factors {
    pub(super) groups: Groups,
    pub(super) factors: Vec<f64>,
    /// The factors that are not 1, by more than rounding makes of them.
    pub(super) changed: usize,
}

impl Factors {
    /// For the groupings that are `wanted`; `one` is what `explain` calls them.
    pub(super) fn fit(
        case: &Case<'_>,
        wanted: impl Fn(&Groups) -> bool,
        one: &str,
    ) -> Result<Self, String> {
        // Of all groupings, not of the wanted ones: finer groups of the wanted kind would repeat what coarser ones of the other say.
        let groups = promising(case, leaves).map_err(|best| refusal(best, one))?;
        if !wanted(&groups) {
            return Err(format!("not {one}: the factors follow {}", groups.said()));
        }
        // Of the elements that fit, and of all.
        let mut sums = vec![[Moments::default(); 2]; groups.count];
        groups.visit(|flat, group| {
            let (r, c) = (case.reference[flat], case.candidate[flat]);
            if r.is_finite() && c.is_finite() {
                sums[group][1].add(r, c);
                if case.fits(flat) {
                    sums[group][0].add(r, c);
                }
            }
        });
        // Where a row is one large value and zeros (probabilities), the half that fits may say nothing of it.
        let telling = |[half, all]: &[Moments; 2]| {
            if half.rr < LEAST_SHARE * all.rr {
                *all
            } else {
                *half
            }
        };
        let factors: Vec<f64> = sums.iter().map(|sums| telling(sums).factor()).collect();
        let changed = factors
            .iter()
            .filter(|factor| (*factor - 1.0).abs() > 2.0 * case.noise[2])
            .count();
        let spread = factors.iter().copied().fold(f64::NEG_INFINITY, f64::max)
            - factors.iter().copied().fold(f64::INFINITY, f64::min);
        if changed == 0 || spread <= 2.0 * case.noise[0] {
            return Err("one factor does for all".to_owned());
        }
        Ok(Self {
            groups,
            factors,
            changed,
        })
    }

    pub(super) fn predicted(&self, case: &Case<'_>) -> Vec<f64> {
        let mut predicted = case.reference.to_vec();
        self.groups
            .visit(|flat, group| predicted[flat] *= self.factors[group]);
        predicted
    }

    /// Whether nearly all groups have one, on the same side of 1: then none is a place, however little each differs.
    pub(super) fn are_coherent(&self) -> bool {
        let above = self.factors.iter().filter(|factor| **factor > 1.0).count();
        let below = self.factors.iter().filter(|factor| **factor < 1.0).count();
        above.max(below) as f64 >= COHERENT * self.groups.count as f64
    }

    /// Smallest, middle and largest.
    pub(super) fn range(&self) -> [f64; 3] {
        let least = self.factors.iter().copied().fold(f64::INFINITY, f64::min);
        let most = self
            .factors
            .iter()
            .copied()
            .fold(f64::NEG_INFINITY, f64::max);
        [least, median(&mut self.factors.clone()), most]
    }
}

/// Of the factors so many must be on one side of 1 to have one cause.
const COHERENT: f64 = 0.9;
/// A half with less of its group's energy than this does not speak for it.
const LEAST_SHARE: f64 = 0.05;

#[derive(Clone, Copy, Debug, Default)]
struct Moments {
    rc: f64,
    rr: f64,
    cc: f64,
}

impl Moments {
    fn add(&mut self, r: f64, c: f64) {
        self.rc += r * c;
        self.rr += r * r;
        self.cc += c * c;
    }

    /// Symmetric, so that noise in the reference does not shrink it; 1 where the reference is zero or unlike the candidate.
    fn factor(self) -> f64 {
        let Self { rc, rr, cc } = self;
        match () {
            () if rr == 0.0 => 1.0,
            () if rc * rc < 0.9 * rr * cc => rc / rr,
            () => (cc / rr).sqrt() * rc.signum(),
        }
    }
}

fn leaves(pairs: &[(f64, f64)]) -> Left {
    let (mut rc, mut rr, mut cc, mut difference) = (0.0, 0.0, 0.0, 0.0);
    for (r, c) in pairs {
        rc += r * c;
        rr += r * r;
        cc += c * c;
        difference += (c - r) * (c - r);
    }
    let left = if rr > 0.0 {
        (cc - rc * rc / rr).max(0.0)
    } else {
        cc
    };
    (left, f64::min(difference, cc))
}

/// Whether the groups are channels: the last axis is among them; the first of a parameter, where the outputs are; or the second of four, where
/// heads or feature maps are.
pub(super) fn are_channels(case: &Case<'_>, groups: &Groups) -> bool {
    let kept = groups.kept();
    let last = case.dims.len() - 1;
    kept.contains(&last)
        || (case.scene.entries()[case.pair].parameter && kept == [0])
        || (case.dims.len() >= 4 && kept == [1])
}
