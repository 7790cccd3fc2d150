//! What was measured over a pair. Fields are declared in alphabetical order, the order in which every version has written them.

use crate::Number;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One side of a pair, over its finite values.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct SideTotals {
    #[schema(required = true)]
    pub inf: u64,
    #[schema(required = true)]
    pub max: Option<Number>,
    #[schema(required = true)]
    pub mean: Option<Number>,
    #[schema(required = true)]
    pub min: Option<Number>,
    #[schema(required = true)]
    pub nan: u64,
    #[schema(required = true)]
    pub norm: Option<Number>,
    #[schema(required = true)]
    pub std: Option<Number>,
    #[schema(required = true)]
    pub zero: u64,
}

/// One of the worst elements.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Worst {
    /// The values with all their digits, where an f64 cannot hold them: integers beyond 2^53, complex numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exact: Option<[String; 2]>,
    #[schema(required = true)]
    pub index: Option<Vec<u64>>,
    /// reference, candidate
    pub values: [Number; 2],
}

impl Worst {
    /// `candidate - reference`, rounded once.
    pub fn difference(&self) -> f64 {
        let whole = |text: &String| text.parse::<i128>().ok();
        match self
            .exact
            .as_ref()
            .map(|[reference, candidate]| (whole(reference), whole(candidate)))
        {
            Some((Some(reference), Some(candidate))) => candidate.saturating_sub(reference) as f64,
            _ => self.values[1].0 - self.values[0].0,
        }
    }
}

/// Numbers measured over a pair, no opinion. Undefined is null, never 0.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Totals {
    #[schema(required = true)]
    pub argmax: Option<Vec<u64>>,
    /// Elements beyond the tolerance, when one was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beyond: Option<u64>,
    pub candidate: SideTotals,
    pub compared: u64,
    #[schema(required = true)]
    pub cosine: Option<Number>,
    pub count: u64,
    pub differing: u64,
    /// Histogram of the differences by magnitude: exponent of two, count.
    #[serde(default)]
    #[schema(required = true)]
    pub magnitudes: Vec<(i32, u64)>,
    #[schema(required = true)]
    pub max_abs: Option<Number>,
    #[schema(required = true)]
    pub max_rel: Option<Number>,
    #[schema(required = true)]
    pub max_ulp: Option<Number>,
    #[schema(required = true)]
    pub mean_abs: Option<Number>,
    #[schema(required = true)]
    pub mean_rel: Option<Number>,
    #[schema(required = true)]
    pub mse: Option<Number>,
    pub reference: SideTotals,
    #[schema(required = true)]
    pub rel_l2: Option<Number>,
    #[serde(default)]
    #[schema(required = true)]
    pub top: Vec<Worst>,
    /// Histogram of the differences in units in the last place: `k` for 2^k .. 2^(k+1), count.
    #[serde(default)]
    #[schema(required = true)]
    pub ulps: Vec<(u32, u64)>,
    #[schema(required = true)]
    pub worst: Option<[Number; 2]>,
    /// `worst` with all its digits, where an f64 cannot hold them: integers beyond 2^53, complex numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worst_exact: Option<[String; 2]>,
    /// Elements that are NaN or infinite on one side and something else on the other. Not in the JSON: 0 in a report that was read.
    #[serde(skip)]
    pub nonfinite_differing: u64,
}

impl Totals {
    /// Whether some element is NaN or infinite on one side and something else on the other. Such an element is always `worst`. Failing
    /// that, elements that differ while `max_abs` (over finite elements) is 0 show it.
    pub fn unequal_nonfinite(&self) -> bool {
        let worst = self
            .worst
            .is_some_and(|worst| worst.iter().any(|value| !value.0.is_finite()));
        self.differing > 0 && (worst || self.max_abs.is_none_or(|most| most.0 == 0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nan_on_one_side_shows_in_a_pair_whose_other_values_agree() {
        let totals = |differing: u64, max_abs: f64, worst: serde_json::Value| -> Totals {
            let json = serde_json::json!({"count": 4, "compared": 3, "differing": differing, "max_abs": max_abs, "worst": worst, "reference": {}, "candidate": {}});
            serde_json::from_value(json).unwrap()
        };
        assert!(totals(1, 0.0, serde_json::json!([1.0, "NaN"])).unequal_nonfinite());
        assert!(totals(5, 0.25, serde_json::json!(["Infinity", "-Infinity"])).unequal_nonfinite());
        assert!(!totals(5, 0.25, serde_json::json!([1.0, 1.25])).unequal_nonfinite());
        assert!(!totals(0, 0.0, serde_json::json!([1.0, 1.0])).unequal_nonfinite());
    }
}
