//! One factor per group: what the hypotheses of channels and rows share.

use super::groups::{Groups, Left, promising, refusal};
use crate::causes::{Case, array::median};

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
    pub(super) fn fit(case: &Case<'_>, wanted: impl Fn(&Groups) -> bool, one: &str) -> Result<Self, String> {
        // Of all groupings, not of the wanted ones: finer groups of the wanted kind would repeat what coarser ones of the other say.
        let groups = promising(case, leaves).map_err(|best| refusal(best, one))?;
        if !wanted(&groups) {
            return Err(format!("not {one}: the factors follow {}", groups.said()));
        }
        let (mut rc, mut rr, mut cc) = (vec![0.0; groups.count], vec![0.0; groups.count], vec![0.0; groups.count]);
        groups.visit(|flat, group| {
            let (r, c) = (case.reference[flat], case.candidate[flat]);
            if case.fits(flat) && r.is_finite() && c.is_finite() {
                rc[group] += r * c;
                rr[group] += r * r;
                cc[group] += c * c;
            }
        });
        let factors: Vec<f64> = (0..groups.count).map(|group| factor(rc[group], rr[group], cc[group])).collect();
        let changed = factors.iter().filter(|factor| (*factor - 1.0).abs() > 2.0 * case.noise[2]).count();
        let spread = factors.iter().copied().fold(f64::NEG_INFINITY, f64::max) - factors.iter().copied().fold(f64::INFINITY, f64::min);
        if changed == 0 || spread <= 2.0 * case.noise[0] {
            return Err("one factor does for all".to_owned());
        }
        Ok(Self { groups, factors, changed })
    }

    pub(super) fn predicted(&self, case: &Case<'_>) -> Vec<f64> {
        let mut predicted = case.reference.to_vec();
        self.groups.visit(|flat, group| predicted[flat] *= self.factors[group]);
        predicted
    }

    /// Smallest, middle and largest.
    pub(super) fn range(&self) -> [f64; 3] {
        let least = self.factors.iter().copied().fold(f64::INFINITY, f64::min);
        let most = self.factors.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        [least, median(&mut self.factors.clone()), most]
    }
}

/// Symmetric, so that noise in the reference does not shrink it; 1 where the reference is zero or unlike the candidate.
fn factor(rc: f64, rr: f64, cc: f64) -> f64 {
    match () {
        () if rr == 0.0 => 1.0,
        () if rc * rc < 0.9 * rr * cc => rc / rr,
        () => (cc / rr).sqrt() * rc.signum(),
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
    let left = if rr > 0.0 { (cc - rc * rc / rr).max(0.0) } else { cc };
    (left, f64::min(difference, cc))
}

/// Whether the groups are channels: the last axis is among them; the first of a parameter, where the outputs are; or the second of four, where
/// heads or feature maps are.
pub(super) fn are_channels(case: &Case<'_>, groups: &Groups) -> bool {
    let kept = groups.kept();
    let last = case.dims.len() - 1;
    kept.contains(&last) || (case.scene.entries()[case.pair].parameter && kept == [0]) || (case.dims.len() >= 4 && kept == [1])
}
