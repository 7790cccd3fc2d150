//! A comparison whose pairs are measured elsewhere: the plan and every part go through bytes, and the report is the same to the byte.

use std::collections::BTreeSet;
use twinscope_compare::{
    Job, Judged, Settings, Side, Sources, job,
    plan::{self, Plan},
    plan_alone,
    work::{self, Outcome, Part},
};
use twinscope_demo::{Fault, Model, Record, Run, Spec, run};
use twinscope_explain::Causes;
use twinscope_tensor::{DType, Listing, ReadError, Shape, TensorInfo, TensorSource, View};

/// The bytes of a part on their way to another process.
fn encoded(part: &Part) -> Vec<u8> {
    // With field names, as a format for storage must have them: parts of an older version stay readable when a field is added.
    rmp_serde::to_vec_named(part).expect("a part can be encoded")
}

/// A part after its journey. Equal bytes are required besides equality, because NaN differs from itself.
fn decoded(bytes: &[u8], sent: &Part, what: &str) -> Part {
    let part: Part =
        rmp_serde::from_slice(bytes).unwrap_or_else(|error| panic!("{what}: {error}: {sent:?}"));
    assert_eq!(encoded(&part), bytes, "{what}: {sent:?}");
    // Every NaN prints alike, so this also finds a field that is never encoded.
    assert_eq!(format!("{part:?}"), format!("{sent:?}"), "{what}");
    part
}

/// A plan after its journey.
fn sent(plan: &Plan) -> Plan {
    let json = serde_json::to_vec(plan).expect("a plan can be encoded");
    let read: Plan = serde_json::from_slice(&json).expect("a plan can be decoded");
    assert_eq!(read, *plan);
    read
}

/// Fisher and Yates, with numbers that look random and are the same in every run.
fn shuffled<T>(mut these: Vec<T>) -> Vec<T> {
    let mut state = 7u64;
    for last in (1..these.len()).rev() {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        these.swap(last, ((state >> 33) % (last as u64 + 1)) as usize);
    }
    these
}

/// What the parts of all cases had in them: a test of the journey is only as good as its passengers.
#[derive(Default)]
struct Seen(BTreeSet<&'static str>);

impl Seen {
    fn note(&mut self, part: &Part) {
        self.0.insert(match &part.outcome {
            Outcome::Measured(..) => "measured",
            Outcome::Incomparable(_) => "incomparable",
            Outcome::Unreadable { .. } => "unreadable",
            Outcome::NotReached => "not reached",
            Outcome::Ranked => "ranked",
        });
        let Outcome::Measured(totals, measures) = &part.outcome else {
            return;
        };
        let worst = || {
            let each = totals.top.iter().chain(&totals.worst);
            each.flat_map(|worst| [worst.reference, worst.candidate])
        };
        let facts = [
            ("a NaN", worst().any(f64::is_nan)),
            ("an infinity", worst().any(f64::is_infinite)),
            (
                "an infinite measure",
                measures.iter().any(|one| one.is_infinite()),
            ),
            (
                "a wide integer",
                totals.top.iter().any(|worst| worst.integers[0].is_some()),
            ),
            (
                "a complex NaN",
                totals.top.iter().any(|worst| {
                    worst
                        .imaginary
                        .is_some_and(|both| both.iter().any(|one| one.is_nan()))
                }),
            ),
            ("profiles", !totals.profiles.is_empty()),
            (
                "elements beyond a tolerance",
                totals.beyond.is_some_and(|count| count > 0),
            ),
            (
                "layout steps",
                part.layout
                    .as_ref()
                    .is_some_and(|layout| !layout.steps.is_empty()),
            ),
        ];
        let present = facts.into_iter().filter(|(_, present)| *present);
        self.0.extend(present.map(|(fact, _)| fact));
    }
}

/// Measures a plan part by part, sends everything through bytes and makes the report from what arrives.
fn through_bytes(
    sources: &Sources<'_>,
    settings: &Settings,
    seen: &mut Seen,
    what: &str,
) -> Judged {
    let reference = Side::new(sources.reference);
    let candidate = Side::new(sources.candidate.unwrap_or(sources.reference));
    let plan = match sources.candidate {
        Some(_) => plan::plan(&reference, &candidate, settings).unwrap(),
        None => plan_alone(&reference, settings, false).unwrap().0,
    };
    let slots = work::slots(&plan);
    work::measure(&plan, &reference, &candidate, settings, &(), &slots);
    let parts = work::taken(&slots);
    parts.iter().for_each(|part| seen.note(part));
    let messages = shuffled(parts.iter().map(encoded).enumerate().collect());
    let mut arrived = vec![Part::not_reached(); parts.len()];
    for (nth, bytes) in messages {
        arrived[nth] = decoded(&bytes, &parts[nth], what);
    }
    job::merge(
        &sent(&plan),
        arrived,
        sources,
        settings,
        None,
        Some(&Causes),
    )
}

fn document(report: &Judged) -> String {
    serde_json::to_string_pretty(&report.document()).unwrap()
}

fn check(sources: &Sources<'_>, settings: &Settings, seen: &mut Seen, what: &str) -> Judged {
    let job = Job::new(settings.clone());
    job.run(sources, Some(&Causes)).unwrap();
    let direct = job.into_judged().expect("nobody stopped it");
    let merged = through_bytes(sources, settings, seen, what);
    let (expected, found) = (document(&direct), document(&merged));
    if let Some((a, b)) = expected.lines().zip(found.lines()).find(|(a, b)| a != b) {
        panic!("{what}: {a} became {b}");
    }
    assert_eq!(expected, found, "{what}");
    direct
}

/// The demo without and with a fault.
fn planted(name: &str, spec: Spec) -> [Run; 2] {
    let fault = Fault::named(name).unwrap_or_else(|| panic!("no fault `{name}`"));
    let spec = spec
        .with_fault(fault, Some(1))
        .unwrap_or_else(|error| panic!("{name}: {error}"));
    [run(&spec.reference()).unwrap(), run(&spec).unwrap()]
}

#[test]
fn a_report_merged_from_sent_parts_is_the_report_of_a_direct_comparison() {
    let stages = || Spec {
        layers: 2,
        ..Spec::default()
    };
    let full = || Spec {
        record: Record::Full,
        ..stages()
    };
    let of = |model: Model, dtype: DType, tp: usize, spec: Spec| Spec {
        model,
        dtype,
        tp,
        ..spec
    };
    use {DType::*, Model::*};
    let cases = [
        ("rope_theta", stages()),
        ("kv_swapped", of(Llama, F32, 2, stages())),
        ("attn_scale_dim", of(Gpt2, F32, 1, stages())),
        ("q_bias_missing", of(Gpt2, F32, 4, full())),
        ("mask_missing", of(Llama, Bf16, 1, stages())),
        ("attn_softcap", of(Llama, Bf16, 2, full())),
        ("mlp_int4", of(Llama, F16, 1, stages())),
        ("weight_transposed", full()),
        ("router_wrong_expert", of(Moe, F32, 1, stages())),
        ("nan_element", stages()),
        ("nan_token", of(Llama, Bf16, 2, stages())),
        ("overflow_f16", of(Llama, F32, 1, stages())),
        ("all_reduce_missing_ranks", stages()),
        ("tp_shards", stages()),
        ("names_swapped", stages()),
        ("rope_weights_layout", full()),
        ("tp_order", of(Llama, F64, 4, stages())),
    ];
    let mut seen = Seen::default();
    for (name, spec) in cases {
        let [reference, candidate] = planted(name, spec);
        let sources = Sources::two(&reference, &candidate);
        check(&sources, &Settings::default(), &mut seen, name);
    }
    for what in ["a NaN", "profiles", "layout steps"] {
        assert!(seen.0.contains(what), "no part has {what}: {:?}", seen.0);
    }
}

#[test]
fn settings_that_change_what_is_measured_change_it_elsewhere_too() {
    let [reference, candidate] = planted("rope_theta", Spec::default());
    let sources = Sources::two(&reference, &candidate);
    let mut seen = Seen::default();
    let tolerance = Settings {
        rtol: Some(1e-3),
        atol: Some(1e-6),
        ..Settings::default()
    };
    check(&sources, &tolerance, &mut seen, "rtol and atol");
    assert!(
        seen.0.contains("elements beyond a tolerance"),
        "{:?}",
        seen.0
    );
    let some = Settings {
        only: vec!["1_*".to_owned()],
        causes: false,
        ..Settings::default()
    };
    check(&sources, &some, &mut seen, "only, no causes");
}

#[test]
fn the_pairs_of_one_source_alone_are_sent_like_those_of_two() {
    let reference = run(&Spec::default()).unwrap();
    let sources = Sources::alone(&reference);
    let mut seen = Seen::default();
    check(&sources, &Settings::default(), &mut seen, "alone");
    let few = Settings {
        only: vec!["1_*".to_owned()],
        skip: vec!["1_attn*".to_owned()],
        ..Settings::default()
    };
    check(&sources, &few, &mut seen, "alone, few");
    for what in ["measured", "ranked", "incomparable"] {
        assert!(seen.0.contains(what), "no part is {what}: {:?}", seen.0);
    }
}

/// Tensors made by hand; one without bytes cannot be read.
struct Handmade {
    listing: Listing,
    bytes: Vec<Option<Vec<u8>>>,
}

/// Name, dtype, dimensions and bytes.
type Tensor<'a> = (&'a str, DType, &'a [u64], Option<Vec<u8>>);

impl Handmade {
    fn new(tensors: Vec<Tensor<'_>>) -> Self {
        let (mut listing, mut all) = (Listing::default(), Vec::new());
        for (name, dtype, dims, bytes) in tensors {
            listing.tensors.push(TensorInfo {
                name: name.to_owned(),
                dtype,
                shape: Shape::new(dims),
                bytes: None,
                meta: None,
            });
            all.push(bytes);
        }
        Self {
            listing,
            bytes: all,
        }
    }
}

impl TensorSource for Handmade {
    fn listing(&self) -> &Listing {
        &self.listing
    }

    fn view(&self, index: usize) -> Result<View, ReadError> {
        let info = &self.listing.tensors[index];
        let bytes = self.bytes[index].clone();
        let bytes = bytes.ok_or(ReadError::NoData { why: "it is lost" })?;
        Ok(View::new(info.dtype, info.shape.clone(), bytes.into())?)
    }
}

fn f64s(values: &[f64]) -> Option<Vec<u8>> {
    Some(
        values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect(),
    )
}

fn i64s(values: &[i64]) -> Option<Vec<u8>> {
    Some(
        values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect(),
    )
}

#[test]
fn what_is_infinite_or_no_number_or_cannot_be_compared_arrives_as_it_was() {
    const INF: f64 = f64::INFINITY;
    const NAN: f64 = f64::NAN;
    let wide = (1 << 60) + 1;
    let reference = Handmade::new(vec![
        ("0_query", DType::F64, &[4], f64s(&[1.0, NAN, INF, -0.0])),
        ("0_key", DType::F64, &[4], f64s(&[0.0; 4])),
        ("0_value", DType::C128, &[2], f64s(&[1.0, 2.0, 3.0, NAN])),
        ("input_ids", DType::I64, &[2], i64s(&[wide, i64::MIN])),
        ("0_gate", DType::F64, &[3], f64s(&[1.0; 3])),
        ("0_up", DType::F64, &[2], f64s(&[1.0; 2])),
        ("0_down", DType::F64, &[2], None),
        ("logits", DType::F64, &[2], f64s(&[1e300, 5e-324])),
    ]);
    let candidate = Handmade::new(vec![
        ("0_query", DType::F64, &[4], f64s(&[NAN, 2.0, -INF, 0.0])),
        ("0_key", DType::F64, &[4], f64s(&[1.0, 0.0, INF, 0.0])),
        ("0_value", DType::C128, &[2], f64s(&[1.0, INF, 3.0, 4.0])),
        ("input_ids", DType::I64, &[2], i64s(&[wide + 1, i64::MAX])),
        ("0_gate", DType::F64, &[5], f64s(&[1.0; 5])),
        ("0_up", DType::F64, &[2], None),
        ("0_down", DType::F64, &[2], f64s(&[1.0; 2])),
        ("logits", DType::F64, &[2], f64s(&[-1e300, 0.0])),
    ]);
    let sources = Sources::two(&reference, &candidate);
    let mut seen = Seen::default();
    let report = check(&sources, &Settings::default(), &mut seen, "handmade");
    assert_eq!(report.pairs.len(), 8, "every tensor has its partner");
    for what in [
        "measured",
        "incomparable",
        "unreadable",
        "a NaN",
        "an infinity",
        "an infinite measure",
        "a wide integer",
        "a complex NaN",
    ] {
        assert!(seen.0.contains(what), "no part has {what}: {:?}", seen.0);
    }
}

#[test]
fn a_part_that_never_arrives_makes_the_report_partial() {
    let [reference, candidate] = planted("rope_theta", Spec::default());
    let sources = Sources::two(&reference, &candidate);
    let (left, right) = (Side::new(&reference), Side::new(&candidate));
    let settings = Settings::default();
    let plan = plan::plan(&left, &right, &settings).unwrap();
    let slots = work::slots(&plan);
    work::measure(&plan, &left, &right, &settings, &(), &slots);
    let mut parts = work::taken(&slots);
    parts[3] = decoded(
        &encoded(&Part::not_reached()),
        &Part::not_reached(),
        "a part that was not reached",
    );
    let report = job::merge(&plan, parts, &sources, &settings, None, Some(&Causes));
    assert!(report.partial && !report.pairs.is_empty());
    assert!(report.pairs.iter().all(|pair| pair.causes.is_empty()));
}
