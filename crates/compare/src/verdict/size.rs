//! The judgement on each pair by size alone, in execution order.
//!
//! Integers, booleans and opaque bytes must be equal. Numbers agree when all four measures of [`crate::noise`] stay below the larger of
//! the pair's own floor and [`AMPLIFICATION`] times what arrived from upstream: the largest measure of any earlier pair that was itself
//! rounding. A pair beyond that diverged. It is *inherited* when an earlier pair diverged and this one's error is within the same
//! reach of it, else *own*. Parameters are computed from nothing: they inherit no level. Those that differ by rounding (bf16 beside f32) pass
//! theirs on, for what is computed from them is off by as much.
//!
//! Upstream error cannot grow without end and still be rounding: after `n` pairs it is believed up to [`DRIFT`] `* sqrt(n)` floors of the
//! coarsest pair so far. What is computed in f32 from rounded bf16 (probabilities, logits) has the noise of bf16.
//!
//! With `--rtol` / `--atol` the rule is NumPy's instead, element by element: `|c - r| <= atol + rtol * |r|`.

use super::{Judgement, Reason};
use crate::noise::{
    AMPLIFICATION, MOST, Measures, extreme, floor, least_step, once, turned, unit_roundoff,
};
use twinscope_measure::Totals;
use twinscope_report::{Origin, Verdict};
use twinscope_tensor::DType;

const EQUAL: Reason = Reason {
    name: "equal",
    why: "Every value is the same on both sides.",
};
const WITHIN_TOLERANCE: Reason = Reason {
    name: "within_tolerance",
    why: "Every value is within the user's --rtol and --atol.",
};
const WITHIN_NOISE: Reason = Reason {
    name: "within_noise",
    why: "The difference is within what rounding here and upstream can do.",
};
const BEYOND_TOLERANCE: Reason = Reason {
    name: "beyond_tolerance",
    why: "Some values are beyond the user's --rtol and --atol.",
};
const BEYOND_NOISE: Reason = Reason {
    name: "beyond_noise",
    why: "The difference is beyond what rounding here and upstream can do.",
};

/// How far rounding may have drifted after `n` pairs, in floors times sqrt(n). Healthy runs reached half a floor times sqrt(50).
const DRIFT: f64 = 2.0;

/// Downstream of a divergence there is a simpler explanation for an error than amplified rounding: only what stays within this many
/// times the level before it has recovered. Healthy steps grew by 1.8 at most.
const RECOVERED: f64 = 2.0;

/// The worst slice and the worst element are those where sums have cancelled: they are amplified by so much more. The output of a state space model
/// that is recorded without its steps reached 1.03 times what is allowed without.
const EXTREMES: f64 = 1.6;

/// What is known of a pair when it is judged.
#[derive(Debug)]
pub struct Facts<'a> {
    pub totals: &'a Totals,
    /// Its [`measures`](crate::noise::measures).
    pub measures: Measures,
    pub dtypes: [DType; 2],
    /// The longest sum that may have made one element.
    pub reduction: u64,
    /// The rounding of the largest [`angle`](crate::noise::angle) it was computed with.
    pub angle: f64,
    /// How far apart the logits are that it is the [`spread`](crate::noise::spread) of; 0 when it is no probabilities.
    pub spread: f64,
    pub parameter: bool,
    /// The measures of the same tensor in a repeat or higher-precision run, when the user gave one.
    pub measured_floor: Option<Measures>,
    /// The user's tolerance decides alone.
    pub tolerance: bool,
}

/// How many times a measured floor a difference may be: two samples of one noise differ that much.
const MEASURED: f64 = 4.0;

/// Judges pairs one after another, carrying what flows downstream.
#[derive(Clone, Debug, Default)]
pub struct Judge {
    pairs: u32,
    /// The largest measures of the pairs that were rounding.
    level: Measures,
    /// The largest floor of any pair that may have fed another.
    coarsest: Measures,
    /// The largest measures of the pairs that diverged.
    diverged: Option<Measures>,
    nonfinite: bool,
}

impl Judge {
    pub fn judge(&mut self, facts: &Facts<'_>) -> Judgement {
        self.pairs += 1;
        let totals = facts.totals;
        if totals.differing == 0 {
            return Judgement::new(Verdict::Identical, None, None, EQUAL);
        }
        if facts.tolerance {
            return if totals.beyond == Some(0) {
                Judgement::new(Verdict::Rounding, None, None, WITHIN_TOLERANCE)
            } else {
                self.diverge(facts, facts.measures)
            };
        }
        let Some(own_floor) = own_floor(facts) else {
            return self.diverge(facts, facts.measures);
        };
        let found = facts.measures;
        self.coarsest = max(&self.coarsest, &own_floor);
        let mut bound = self.bound(&own_floor, facts);
        // What is off by no more than the smallest step of its dtype was not told apart when it was stored. Underflow of most of it still is.
        if totals
            .max_abs
            .is_some_and(|off| off <= facts.dtypes.into_iter().map(least_step).fold(0.0, f64::max))
        {
            bound = max(&bound, &MOST);
        }
        if found[0] <= bound[0] {
            bound[3] = bound[3].max((extreme(totals.count) * found[0]).min(MOST[3]));
        }
        if totals.nonfinite_differing > 0 || !below(&found, &bound) {
            return self.diverge(facts, found);
        }
        self.level = max(&self.level, &found);
        Judgement::new(Verdict::Rounding, None, None, WITHIN_NOISE)
    }

    /// What rounding can do at the pair that comes next: its own floor, or what arrives from upstream.
    pub fn noise(&self, facts: &Facts<'_>) -> Measures {
        own_floor(facts).map_or([0.0; 4], |floor| self.bound(&floor, facts))
    }

    fn bound(&self, floor: &Measures, facts: &Facts<'_>) -> Measures {
        if facts.parameter {
            return *floor;
        }
        let reach = if self.diverged.is_some() {
            RECOVERED
        } else {
            AMPLIFICATION
        };
        let drift = DRIFT * f64::from(self.pairs).sqrt();
        let reach = |measure: usize| {
            if measure < 2 || self.diverged.is_some() {
                reach
            } else {
                EXTREMES * reach
            }
        };
        let level = |i: usize| self.level[i].min(drift * self.coarsest[i].max(floor[i]));
        // What a softmax makes of its logits' error, whatever it is, unless something diverged before.
        let amplified = if self.diverged.is_some() {
            0.0
        } else {
            facts.spread
        };
        std::array::from_fn(|i| {
            floor[i]
                .max(reach(i) * level(i))
                .max((amplified * level(i)).min(MOST[i]))
        })
    }

    fn diverge(&mut self, facts: &Facts<'_>, found: Measures) -> Judgement {
        let first_nonfinite = facts.totals.nonfinite_differing > 0 && !self.nonfinite;
        // What was wrong in one place only is wrong in every channel once it has been multiplied with a weight.
        let whole = |level: &Measures| if level[0].is_finite() { level[0] } else { 0.0 };
        let spread = |level: Measures| {
            [
                level[0],
                level[1].max(whole(&level)),
                EXTREMES * level[2],
                EXTREMES * level[3],
            ]
        };
        let reached = self
            .diverged
            .is_some_and(|level| below(&found, &spread(level).map(|m| AMPLIFICATION * m)));
        let origin = if facts.parameter || first_nonfinite || !(reached || self.nonfinite) {
            Origin::Own
        } else {
            Origin::Inherited
        };
        if !facts.parameter {
            self.nonfinite |= facts.totals.nonfinite_differing > 0;
            self.diverged = Some(self.diverged.map_or(found, |level| max(&level, &found)));
        }
        let reason = if facts.tolerance {
            BEYOND_TOLERANCE
        } else {
            BEYOND_NOISE
        };
        Judgement::new(Verdict::Diverged, Some(origin), None, reason)
    }
}

/// How many times one op's rounding a result in single precision or better may be off: a whole layer may lie between two recorded tensors, and what
/// is not recorded (the sine of a time step, off by the rounding of a thousand) may be worse than anything that is. The output of the first block
/// of a UNet was 23 units off in f32 against f64, where [`floor`] has 12. No fault is so small but another epsilon, which is found by its formula.
const UNSEEN: f64 = 3.0;

fn unseen(dtypes: [DType; 2]) -> f64 {
    let fine = |dtype: DType| unit_roundoff(dtype).is_some_and(|unit| unit <= 2f64.powi(-24));
    if dtypes.into_iter().all(fine) {
        UNSEEN
    } else {
        1.0
    }
}

/// Modelled, and where the user gave a run for it as large as measured; `None` for what must be equal. Never below the model: a repeat
/// that happens to be the same bit for bit does not forbid another order of summation.
fn own_floor(facts: &Facts<'_>) -> Option<Measures> {
    let measured = facts
        .measured_floor
        .map(|measured| measured.map(|m| MEASURED * m));
    let once = if facts.parameter {
        once(facts.dtypes)
    } else {
        None
    };
    let unseen = if facts.parameter {
        1.0
    } else {
        unseen(facts.dtypes)
    };
    let computed = || {
        floor(facts.dtypes, facts.reduction)
            .map(|floor| turned(&floor.map(|m| unseen * m), facts.angle))
    };
    let modelled = once.or_else(computed);
    match (measured, modelled) {
        (Some(measured), Some(modelled)) => Some(max(&measured, &modelled)),
        (measured, modelled) => measured.or(modelled),
    }
}

fn below(found: &Measures, bound: &Measures) -> bool {
    // Written so that a NaN is not below anything.
    found.iter().zip(bound).all(|(found, bound)| found <= bound)
}

fn max(a: &Measures, b: &Measures) -> Measures {
    std::array::from_fn(|i| a[i].max(b[i]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::noise::measures;
    use twinscope_measure::Profile;

    /// A pair with this relative error everywhere.
    fn totals(error: f64) -> Totals {
        let profile = Profile {
            axis: 0,
            error: vec![error * error; 8],
            energy: vec![1.0; 8],
            ..Profile::default()
        };
        Totals {
            count: 64,
            compared: 64,
            differing: 64,
            rel_l2: Some(error),
            max_local: Some(error),
            profiles: vec![profile],
            ..Totals::default()
        }
    }

    fn facts(totals: &Totals, dtype: DType) -> Facts<'_> {
        Facts {
            totals,
            measures: measures(totals),
            dtypes: [dtype; 2],
            reduction: 64,
            angle: 0.0,
            spread: 0.0,
            parameter: false,
            measured_floor: None,
            tolerance: false,
        }
    }

    fn run(errors: &[f64], dtype: DType) -> Vec<Judgement> {
        let mut judge = Judge::default();
        errors
            .iter()
            .map(|error| judge.judge(&facts(&totals(*error), dtype)))
            .collect()
    }

    impl PartialEq<(Verdict, Option<Origin>)> for Judgement {
        fn eq(&self, (verdict, origin): &(Verdict, Option<Origin>)) -> bool {
            (self.verdict(), self.origin()) == (*verdict, *origin)
        }
    }

    const ROUNDING: (Verdict, Option<Origin>) = (Verdict::Rounding, None);
    const OWN: (Verdict, Option<Origin>) = (Verdict::Diverged, Some(Origin::Own));
    const INHERITED: (Verdict, Option<Origin>) = (Verdict::Diverged, Some(Origin::Inherited));

    #[test]
    fn drift_is_rounding_a_jump_is_not() {
        assert_eq!(
            run(&[1e-7, 3e-7, 6e-7, 9e-7, 1e-4, 1e-4], DType::F32),
            [ROUNDING, ROUNDING, ROUNDING, ROUNDING, OWN, INHERITED]
        );
        assert_eq!(
            run(&[2e-3, 5e-3, 1e-2, 2e-2, 0.28, 0.1], DType::Bf16),
            [ROUNDING, ROUNDING, ROUNDING, ROUNDING, OWN, INHERITED]
        );
    }

    #[test]
    fn layers_that_are_not_recorded_may_round_more_in_single_precision() {
        let off = totals(1.3e-6);
        assert_eq!(Judge::default().judge(&facts(&off, DType::F32)), ROUNDING);
        assert_eq!(
            Judge::default().judge(&Facts {
                dtypes: [DType::F64, DType::F32],
                ..facts(&off, DType::F32)
            }),
            ROUNDING
        );
        assert_eq!(
            Judge::default().judge(&Facts {
                parameter: true,
                ..facts(&off, DType::F32)
            }),
            OWN,
            "a weight is not computed"
        );
        assert_eq!(run(&[1e-5], DType::F32), [OWN]);
        assert_eq!(
            run(&[0.02], DType::Bf16),
            [OWN],
            "coarser dtypes have no room for that"
        );
    }

    #[test]
    fn what_is_computed_in_f32_from_bf16_has_its_noise() {
        let judge = |errors: &[(f64, DType)]| {
            let mut judge = Judge::default();
            errors
                .iter()
                .map(|(error, dtype)| judge.judge(&facts(&totals(*error), *dtype)))
                .collect::<Vec<_>>()
        };
        let (bf16, f32) = (DType::Bf16, DType::F32);
        assert_eq!(
            judge(&[(4e-3, bf16), (6e-3, bf16), (5e-3, f32), (4e-3, f32)]),
            [ROUNDING; 4],
            "logits after .float()"
        );
        assert_eq!(
            judge(&[(4e-3, bf16), (0.1, f32)]),
            [ROUNDING, OWN],
            "which excuses no fault"
        );
        assert_eq!(
            judge(&[(1e-7, f32), (5e-3, f32), (4e-3, bf16)])[1],
            OWN,
            "nor what came before it"
        );
        assert_eq!(
            judge(&[(1e-7, bf16), (1e-3, f32)])[1],
            OWN,
            "nor more than arrived"
        );
    }

    #[test]
    fn probabilities_have_the_error_of_their_logits_times_these() {
        let (logits, probabilities) = (totals(1.7e-3), totals(3e-2));
        let judged = |spread: f64| {
            let mut judge = Judge::default();
            assert_eq!(judge.judge(&facts(&logits, DType::Bf16)), ROUNDING);
            judge.judge(&Facts {
                spread,
                ..facts(&probabilities, DType::F32)
            })
        };
        assert_eq!(judged(30.0), ROUNDING);
        assert_eq!([judged(0.0), judged(10.0)], [OWN, OWN]);
        let exact = Facts {
            spread: 30.0,
            ..facts(&probabilities, DType::F32)
        };
        assert_eq!(
            Judge::default().judge(&exact),
            OWN,
            "equal logits make equal probabilities"
        );
        let mut judge = Judge::default();
        judge.judge(&facts(&logits, DType::Bf16));
        let wrong = totals(0.6);
        assert_eq!(
            judge.judge(&Facts {
                spread: 1e3,
                ..facts(&wrong, DType::F32)
            }),
            OWN,
            "nothing excuses unrelated values"
        );
    }

    #[test]
    fn the_worst_of_many_elements_is_as_far_off_as_noise_makes_it_and_no_further() {
        let with = |whole: f64, element: f64| {
            let mut totals = totals(whole);
            (totals.count, totals.max_local) = (16_384, Some(element));
            Judge::default().judge(&facts(&totals, DType::Bf16))
        };
        assert_eq!(
            with(0.0112, 0.0933),
            ROUNDING,
            "64 gradients added up in bf16 in another order"
        );
        assert_eq!(
            with(0.001, 0.0933),
            OWN,
            "one value among many that hardly differ"
        );
        assert_eq!(with(0.0112, 0.2), OWN);
    }

    #[test]
    fn four_percent_of_noise_is_not_rounding_in_any_usual_dtype() {
        for dtype in [DType::F32, DType::F16, DType::Bf16] {
            assert_eq!(run(&[0.044], dtype), [OWN], "{dtype}");
        }
    }

    #[test]
    fn downstream_of_a_fault_only_the_old_level_is_rounding() {
        assert_eq!(
            run(&[1.2e-2, 0.3, 0.05, 0.02], DType::Bf16),
            [ROUNDING, OWN, INHERITED, ROUNDING]
        );
    }

    #[test]
    fn errors_that_creep_up_are_caught() {
        // Four times worse at each step: each alone is within reach of the one before.
        let errors: Vec<f64> = (0..8).map(|i| 2e-7 * 4f64.powi(i)).collect();
        assert!(run(&errors, DType::F32).iter().any(|judged| *judged == OWN));
    }

    #[test]
    fn a_second_larger_fault_is_its_own() {
        assert_eq!(run(&[1e-3, 2e-3, 0.5], DType::F32), [OWN, INHERITED, OWN]);
    }

    #[test]
    fn one_wrong_integer_diverges_and_the_first_nan_is_named() {
        let one = Totals {
            count: 9,
            compared: 9,
            differing: 1,
            rel_l2: Some(1e-9),
            ..Totals::default()
        };
        assert_eq!(Judge::default().judge(&facts(&one, DType::I64)), OWN);
        let nan = Totals {
            nonfinite_differing: 1,
            ..totals(0.0)
        };
        let mut judge = Judge::default();
        assert_eq!(judge.judge(&facts(&totals(0.1), DType::F32)), OWN);
        assert_eq!(judge.judge(&facts(&nan, DType::F32)), OWN);
        assert_eq!(judge.judge(&facts(&nan, DType::F32)), INHERITED);
    }

    #[test]
    fn parameters_are_each_their_own() {
        let wrong = totals(0.1);
        let mut judge = Judge::default();
        for _ in 0..3 {
            assert_eq!(
                judge.judge(&Facts {
                    parameter: true,
                    ..facts(&wrong, DType::F32)
                }),
                OWN
            );
        }
    }

    #[test]
    fn rounded_weights_make_rounded_results() {
        let (weight, result) = (totals(2e-3), totals(3e-3));
        let mut judge = Judge::default();
        let loaded = Facts {
            parameter: true,
            dtypes: [DType::F32, DType::Bf16],
            ..facts(&weight, DType::F32)
        };
        assert_eq!(judge.judge(&loaded), ROUNDING);
        assert_eq!(judge.judge(&facts(&result, DType::F32)), ROUNDING);
        assert_eq!(
            judge.judge(&Facts {
                parameter: true,
                ..facts(&result, DType::F32)
            }),
            OWN,
            "another weight has no such excuse"
        );
        assert_eq!(Judge::default().judge(&facts(&result, DType::F32)), OWN);
    }

    #[test]
    fn a_parameter_in_a_coarser_dtype_was_rounded_once() {
        let kept_in = |dtypes: [DType; 2], error: f64| {
            let totals = totals(error);
            Judge::default().judge(&Facts {
                parameter: true,
                dtypes,
                ..facts(&totals, DType::F32)
            })
        };
        let rounded = 2f64.powi(-8);
        assert_eq!(kept_in([DType::F32, DType::Bf16], rounded), ROUNDING);
        assert_eq!(kept_in([DType::Bf16, DType::F64], rounded), ROUNDING);
        assert_eq!(
            kept_in([DType::F32, DType::Bf16], 0.005),
            OWN,
            "half a percent too large"
        );
        assert_eq!(kept_in([DType::F32, DType::Bf16], 1e-7), ROUNDING);
        // What is computed may be off by more.
        let result = totals(0.005);
        assert_eq!(
            Judge::default().judge(&Facts {
                dtypes: [DType::F32, DType::Bf16],
                ..facts(&result, DType::F32)
            }),
            ROUNDING
        );
    }

    #[test]
    fn a_measured_floor_is_what_rounding_can_do() {
        let noisy = totals(1e-3);
        let measured = Facts {
            measured_floor: Some([5e-4; 4]),
            ..facts(&noisy, DType::F32)
        };
        assert_eq!(Judge::default().judge(&measured), ROUNDING);
        let too_much = Facts {
            measured_floor: Some([1e-4; 4]),
            ..facts(&noisy, DType::F32)
        };
        assert_eq!(Judge::default().judge(&too_much), OWN);
    }

    #[test]
    fn a_repeat_without_any_noise_leaves_the_model() {
        let rounding = totals(2e-7);
        let measured = Facts {
            measured_floor: Some([0.0; 4]),
            ..facts(&rounding, DType::F32)
        };
        assert_eq!(Judge::default().judge(&measured), ROUNDING);
        let one = Totals {
            count: 9,
            compared: 9,
            differing: 1,
            rel_l2: Some(1e-9),
            ..Totals::default()
        };
        let ids = Facts {
            measured_floor: Some([0.0; 4]),
            ..facts(&one, DType::I64)
        };
        assert_eq!(
            Judge::default().judge(&ids),
            OWN,
            "integers are exact all the same"
        );
    }
}
