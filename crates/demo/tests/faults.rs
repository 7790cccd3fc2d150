//! What each fault claims, held against the bits of the runs: nothing differs before its place, its place does.

use proptest::prelude::*;
use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};
use twinscope_demo::{FAULTS, Fault, Model, Outcome, Record, Run, Spec, SpecError, run};
use twinscope_formats::{Cache, Limits, OpenOptions, open};
use twinscope_tensor::{DType, TensorSource, f64_values};

const DTYPES: [DType; 4] = [DType::F64, DType::F32, DType::Bf16, DType::F16];

fn bytes(run: &Run, at: usize) -> Vec<u8> {
    run.view(at)
        .unwrap()
        .contiguous()
        .expect("a run lies in one piece")
        .to_vec()
}

fn values(run: &Run, name: &str) -> Vec<f64> {
    let at = run
        .listing()
        .tensors
        .iter()
        .position(|tensor| tensor.name == name)
        .unwrap_or_else(|| panic!("no `{name}`"));
    let view = run.view(at).unwrap();
    let mut values = Vec::new();
    assert!(f64_values(
        &view,
        0,
        view.len() as usize,
        &mut Vec::new(),
        &mut values
    ));
    values
}

/// The name of the first tensor that is not the same, bit for bit.
fn first_difference(reference: &Run, candidate: &Run) -> Option<String> {
    let (left, right) = (&reference.listing().tensors, &candidate.listing().tensors);
    assert_eq!(left.len(), right.len());
    let differs = |at: usize| {
        assert_eq!(left[at].name, right[at].name);
        left[at].shape != right[at].shape || bytes(reference, at) != bytes(candidate, at)
    };
    (0..left.len())
        .find(|at| differs(*at))
        .map(|at| left[at].name.clone())
}

/// `‖c - r‖ / ‖r‖`.
fn distance(reference: &[f64], candidate: &[f64]) -> f64 {
    assert_eq!(reference.len(), candidate.len());
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|v| v * v).sum::<f64>().sqrt();
    norm(&mut reference.iter().zip(candidate).map(|(r, c)| c - r))
        / norm(&mut reference.iter().copied())
}

/// What a run of this dtype may lose to rounding.
fn rounding(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => 1e-12,
        DType::F32 => 1e-5,
        DType::F16 => 1e-2,
        _ => 8e-2,
    }
}

/// References, each computed once.
#[derive(Default)]
struct References(HashMap<String, Run>);

impl References {
    fn of(&mut self, spec: &Spec) -> &Run {
        let spec = spec.reference();
        self.0
            .entry(format!("{spec:?}"))
            .or_insert_with(|| run(&spec).unwrap())
    }
}

/// Every fault in every model it can be planted in.
fn plantings(dtypes: &[DType]) -> Vec<(&'static Fault, Spec, usize)> {
    let mut all = Vec::new();
    for fault in &FAULTS {
        for (model, dtype) in Model::ALL
            .into_iter()
            .flat_map(|model| dtypes.iter().map(move |dtype| (model, *dtype)))
        {
            for record in [Record::Stages, Record::Full] {
                let spec = Spec {
                    model,
                    dtype,
                    record,
                    ..Spec::default()
                };
                all.extend(
                    spec.with_fault(fault, Some(1))
                        .ok()
                        .map(|spec| (fault, spec, 1)),
                );
            }
        }
    }
    all
}

fn check_claim(fault: &Fault, spec: &Spec, layer: usize, reference: &Run) {
    let what = format!(
        "{} in {} {} {:?} {:?}",
        fault.name, spec.model, spec.dtype, spec.record, spec
    );
    let candidate = run(spec).unwrap();
    let close = |name: &str| {
        let (r, c) = (values(reference, name), values(&candidate, name));
        let far = distance(&r, &c);
        assert!(
            far <= rounding(spec.dtype),
            "{what}: `{name}` is {far} away"
        );
    };
    match fault.outcome {
        Outcome::Diverged | Outcome::Misrecorded | Outcome::Incomparable => {
            assert_eq!(
                first_difference(reference, &candidate),
                Some(fault.first(spec, layer)),
                "{what}"
            );
        }
        Outcome::Harmless => {
            assert_eq!(
                first_difference(reference, &candidate),
                Some(fault.first(spec, layer)),
                "{what}"
            );
            close(&fault.agrees_at(spec, layer).unwrap());
            close("logits");
        }
        Outcome::Benign => unreachable!("benign ones have tests of their own"),
    }
}

/// Runs of several ranks list their tensors once for each.
fn recorded_once(fault: &Fault) -> bool {
    !["all_reduce_missing_ranks", "tp_shards"].contains(&fault.name)
}

#[test]
fn every_fault_shows_first_where_it_says() {
    let mut references = References::default();
    // The property below has the other dtypes.
    for (fault, spec, layer) in plantings(&[DType::F32, DType::Bf16]) {
        if fault.outcome != Outcome::Benign && recorded_once(fault) {
            check_claim(fault, &spec, layer, references.of(&spec));
        }
    }
}

#[test]
fn every_fault_can_be_planted_somewhere() {
    let planted: BTreeSet<&str> = plantings(&[DType::F32])
        .iter()
        .map(|(fault, ..)| fault.name)
        .collect();
    let all: BTreeSet<&str> = FAULTS.iter().map(|fault| fault.name).collect();
    assert_eq!(planted, all);
    assert_eq!(all.len(), FAULTS.len(), "two faults of one name");
}

#[test]
fn the_benign_stay_at_rounding() {
    for (fault, spec, _) in plantings(&DTYPES) {
        if fault.outcome != Outcome::Benign || fault.name == "tp_shards" {
            continue;
        }
        let (reference, candidate) = (run(&spec.reference()).unwrap(), run(&spec).unwrap());
        let coarser = match fault.name {
            "bfloat16" => DType::Bf16,
            "float16" => DType::F16,
            _ => spec.dtype,
        };
        // A router may decide a close call the other way, and then nothing after it is close.
        if spec.model == Model::Moe && rounding(coarser) > 1e-3 {
            continue;
        }
        let (r, mut c) = (values(&reference, "logits"), values(&candidate, "logits"));
        if fault.name == "vocab_padded" {
            c = c
                .chunks(112)
                .flat_map(|row| row[..spec.vocab].to_vec())
                .collect();
        }
        let far = distance(&r, &c);
        assert!(
            far <= rounding(coarser),
            "{} in {} {}: {far}",
            fault.name,
            spec.model,
            spec.dtype
        );
        // Layouts change no value; another order of summation changes some in every dtype.
        let same = ["repeat", "heads_flat", "batch_folded", "vocab_padded"].contains(&fault.name);
        assert!(
            if same {
                far == 0.0
            } else {
                far > 0.0 || fault.name != "tp_order"
            },
            "{} in {} {}",
            fault.name,
            spec.model,
            spec.dtype
        );
    }
}

#[test]
fn shards_of_two_ranks_hold_the_whole() {
    let spec = Spec {
        record: Record::Full,
        ..Spec::default()
    };
    let reference = run(&spec).unwrap();
    let ranks = run(&spec
        .with_fault(Fault::named("tp_shards").unwrap(), None)
        .unwrap())
    .unwrap();
    assert_eq!(ranks.ranks(), 2);
    assert_eq!(
        ranks.listing().tensors.len(),
        2 * reference.listing().tensors.len()
    );
    let dims = |name: &str| {
        ranks
            .listing()
            .tensors
            .iter()
            .find(|tensor| tensor.name == name)
            .unwrap()
            .shape
            .dims()
            .to_vec()
    };
    assert_eq!(dims("rank-1/1_query"), [2, 2, 12, 12]);
    assert_eq!(dims("rank-0/1_act"), [2, 12, 56]);
    assert_eq!(
        dims("rank-0/model.layers.1.self_attn.o_proj.weight"),
        [48, 24]
    );
    assert!(
        distance(
            &values(&reference, "logits"),
            &values(&ranks, "rank-1/logits")
        ) < 1e-5
    );
    let halves = ["rank-0/0_act", "rank-1/0_act"].map(|name| values(&ranks, name));
    let whole: Vec<f64> = halves[0]
        .chunks(56)
        .zip(halves[1].chunks(56))
        .flat_map(|(a, b)| [a, b].concat())
        .collect();
    assert!(distance(&values(&reference, "0_act"), &whole) < 1e-5);
}

#[test]
fn without_its_all_reduce_the_ranks_sum_to_the_reference_and_none_equals_it() {
    let fault = Fault::named("all_reduce_missing_ranks").unwrap();
    let spec = Spec::default().with_fault(fault, Some(1)).unwrap();
    let (reference, ranks) = (run(&spec.reference()).unwrap(), run(&spec).unwrap());
    let first = fault.first(&spec, 1);
    let right = values(&reference, &first);
    let parts = [0, 1].map(|rank| values(&ranks, &format!("rank-{rank}/{first}")));
    let sum: Vec<f64> = parts[0].iter().zip(&parts[1]).map(|(a, b)| a + b).collect();
    assert!(distance(&right, &sum) < 1e-5);
    assert!(parts.iter().all(|part| distance(&right, part) > 0.1));
}

#[test]
fn one_seed_gives_the_same_bits_and_another_gives_others() {
    for (model, dtype) in Model::ALL
        .into_iter()
        .flat_map(|model| DTYPES.map(|dtype| (model, dtype)))
    {
        let spec = Spec {
            model,
            dtype,
            record: Record::Full,
            ..Spec::default()
        };
        let first = run(&spec).unwrap();
        assert_eq!(first_difference(&first, &run(&spec).unwrap()), None);
        let other = run(&Spec { seed: 1, ..spec }).unwrap();
        assert!(first_difference(&first, &other).is_some());
        let logits = values(&first, "logits");
        assert!(
            logits.iter().all(|value| value.is_finite())
                && logits.iter().any(|value| value.abs() > 0.1)
        );
    }
}

#[test]
fn a_full_record_says_what_everything_was_computed_from() {
    for model in Model::ALL {
        let full = run(&Spec {
            model,
            record: Record::Full,
            ..Spec::default()
        })
        .unwrap();
        for (at, tensor) in full.listing().tensors.iter().enumerate() {
            let meta = tensor.meta.as_ref().expect("a full record has facts");
            let inputs: Vec<usize> = meta
                .get("inputs")
                .and_then(|list| list.as_array())
                .into_iter()
                .flatten()
                .map(|i| i.as_u64().unwrap() as usize)
                .collect();
            assert!(inputs.iter().all(|input| *input < at), "{}", tensor.name);
            let starts = meta["role"] == "param" || tensor.name == "input_ids";
            assert_eq!(inputs.is_empty(), starts, "{}", tensor.name);
        }
        let stages = run(&Spec {
            model,
            ..Spec::default()
        })
        .unwrap();
        assert!(
            stages
                .listing()
                .tensors
                .iter()
                .all(|tensor| tensor.meta.is_none() && !tensor.name.ends_with("weight"))
        );
    }
}

#[test]
fn a_run_that_was_written_reads_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let ranked = Spec {
        record: Record::Full,
        ..Spec::default()
    }
    .with_fault(Fault::named("tp_shards").unwrap(), None)
    .unwrap();
    let plain = Spec {
        model: Model::Gpt2,
        dtype: DType::Bf16,
        record: Record::Full,
        ..Spec::default()
    };
    for (name, spec) in [("ranked", ranked), ("plain", plain)] {
        let run = run(&spec).unwrap();
        run.write(&folder.path().join(name)).unwrap();
        let cache = Arc::new(Cache::new(folder.path().join("cache"), 0));
        let read = open(
            &folder.path().join(name),
            &OpenOptions {
                limits: Limits::default(),
                cache,
                raw: None,
            },
        )
        .unwrap();
        assert_eq!(read.listing().tensors.len(), run.listing().tensors.len());
        for (at, (ours, theirs)) in run
            .listing()
            .tensors
            .iter()
            .zip(&read.listing().tensors)
            .enumerate()
        {
            assert_eq!(
                (&ours.name, ours.dtype, &ours.shape),
                (&theirs.name, theirs.dtype, &theirs.shape)
            );
            assert_eq!(
                bytes(&run, at),
                read.view(at).unwrap().contiguous().unwrap()
            );
            let theirs = theirs.meta.as_ref().unwrap();
            assert!(
                ours.meta
                    .as_ref()
                    .unwrap()
                    .iter()
                    .all(|(key, value)| theirs.get(key) == Some(value)),
                "{}",
                ours.name
            );
        }
    }
}

#[test]
fn two_faults_show_where_the_earlier_one_does() {
    let spec = Spec::default();
    let spec = spec
        .with_fault(Fault::named("clipped").unwrap(), Some(2))
        .unwrap();
    let spec = spec
        .with_fault(Fault::named("rope_theta").unwrap(), Some(0))
        .unwrap();
    let (reference, candidate) = (run(&spec.reference()).unwrap(), run(&spec).unwrap());
    assert_eq!(
        first_difference(&reference, &candidate).as_deref(),
        Some("0_query_final")
    );
    assert!(
        values(&candidate, "2_post_mlp")
            .iter()
            .all(|value| value.abs() <= 0.75)
    );
    assert_eq!(spec.outcome(), Outcome::Diverged);
}

#[test]
fn a_fault_that_cannot_be_planted_says_what_it_needs() {
    let gpt2 = Spec {
        model: Model::Gpt2,
        ..Spec::default()
    };
    let refused = gpt2
        .clone()
        .with_fault(Fault::named("rope_theta").unwrap(), None)
        .unwrap_err();
    assert_eq!(
        refused.to_string(),
        "`rope_theta` cannot be planted here: it needs rotary positions (--model llama or moe)"
    );
    let too_deep = gpt2
        .with_fault(Fault::named("negated").unwrap(), Some(3))
        .unwrap_err();
    assert_eq!(
        too_deep.to_string(),
        "the layer is 3: the model has 3 layers"
    );
}

#[test]
fn sizes_that_make_no_model_are_refused() {
    let spec = Spec::default();
    for bad in [
        Spec {
            heads: 3,
            ..spec.clone()
        },
        Spec {
            head_dim: 7,
            ..spec.clone()
        },
        Spec {
            seq: 0,
            ..spec.clone()
        },
        Spec {
            hidden: 1 << 20,
            seq: 1 << 20,
            ..spec.clone()
        },
        Spec {
            top_k: 5,
            ..spec.clone()
        },
        Spec {
            tp: usize::MAX,
            ..spec.clone()
        },
    ] {
        assert!(matches!(run(&bad), Err(SpecError::Size { .. })), "{bad:?}");
    }
    assert!(matches!(
        run(&Spec {
            dtype: DType::I64,
            ..spec
        }),
        Err(SpecError::Dtype { .. })
    ));
}

/// Any model a fault could be planted in.
fn specs() -> impl Strategy<Value = (Spec, usize)> {
    let sizes = (
        1usize..4,
        1usize..3,
        6usize..16,
        1usize..3,
        1usize..4,
        1usize..3,
        4usize..8,
    );
    (
        sizes,
        0usize..3,
        0usize..4,
        any::<u64>(),
        any::<bool>(),
        1usize..5,
        any::<usize>(),
    )
        .prop_map(
            |(
                (layers, batch, seq, kv_heads, group, half_dim, inner),
                model,
                dtype,
                seed,
                full,
                tp,
                layer,
            )| {
                let (heads, head_dim) = (kv_heads * group, 4 * half_dim);
                let spec = Spec {
                    model: Model::ALL[model],
                    layers,
                    batch,
                    seq,
                    hidden: 8 * inner,
                    heads,
                    kv_heads,
                    head_dim,
                    inner: 16 * inner,
                    vocab: 50 + inner,
                    dtype: DTYPES[dtype],
                    tp,
                    seed,
                    record: if full { Record::Full } else { Record::Stages },
                    ..Spec::default()
                };
                (spec, layer % layers)
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn faults_show_where_they_say_in_models_of_any_size((spec, layer) in specs(), fault in 0..FAULTS.len()) {
        let fault = &FAULTS[fault];
        // Another order of summation would show before the fault does.
        let spec = Spec { tp: 1, ..spec };
        // Flips need a token at the border, which a short run may not have.
        let sure = fault.name != "router_flip";
        if let (Ok(planted), true) = (spec.with_fault(fault, Some(layer)), sure && fault.outcome != Outcome::Benign && recorded_once(fault)) {
            check_claim(fault, &planted, layer, &run(&planted.reference()).unwrap());
        }
    }

    #[test]
    fn models_of_any_size_run_to_finite_logits((spec, _) in specs()) {
        let run = run(&spec).unwrap();
        prop_assert!(values(&run, "logits").iter().all(|value| value.is_finite()));
    }
}
