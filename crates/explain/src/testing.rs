//! Runs made of lists, for the tests of the hypotheses.

use super::{Case, Examination, Scene, examine};
use twinscope_compare::{
    Sources, facts, judged::Judged, plan, settings::Settings, side::Side, work,
};
use twinscope_report::CauseKind;
use twinscope_tensor::{DType, Listing, ReadError, Shape, TensorInfo, TensorSource, View};

/// One tensor of both sides, under one name and shape.
pub(crate) struct Recorded {
    pub(crate) name: &'static str,
    pub(crate) dims: Vec<usize>,
    pub(crate) reference: Vec<f64>,
    pub(crate) candidate: Vec<f64>,
}

struct Lists {
    listing: Listing,
    bytes: Vec<Vec<u8>>,
}

impl TensorSource for Lists {
    fn listing(&self) -> &Listing {
        &self.listing
    }

    fn view(&self, index: usize) -> Result<View, ReadError> {
        let info = &self.listing.tensors[index];
        Ok(View::new(
            info.dtype,
            info.shape.clone(),
            self.bytes[index].clone().into(),
        )?)
    }
}

fn source<'a>(tensors: impl Iterator<Item = (DType, &'a str, &'a [usize], &'a [f64])>) -> Lists {
    let mut lists = Lists {
        listing: Listing::default(),
        bytes: Vec::new(),
    };
    for (dtype, name, dims, values) in tensors {
        let shape = Shape::from(dims.iter().map(|dim| *dim as u64).collect::<Vec<_>>());
        lists.listing.tensors.push(TensorInfo {
            name: name.to_owned(),
            dtype,
            shape,
            bytes: None,
            meta: None,
        });
        lists.bytes.push(
            values
                .iter()
                .flat_map(|value| encoded(dtype, *value))
                .collect(),
        );
    }
    lists
}

fn encoded(dtype: DType, value: f64) -> Vec<u8> {
    let bits = (value as f32).to_bits();
    match dtype {
        DType::Bf16 => (((bits + 0x7fff + ((bits >> 16) & 1)) >> 16) as u16)
            .to_le_bytes()
            .to_vec(),
        DType::I64 => (value as i64).to_le_bytes().to_vec(),
        DType::F64 => value.to_le_bytes().to_vec(),
        DType::F16 => {
            let steps = (value.abs() * 2f64.powi(24)).round();
            assert!(steps < 1024.0, "only the smallest numbers are needed");
            (steps as u16 | if value < 0.0 { 0x8000 } else { 0 })
                .to_le_bytes()
                .to_vec()
        }
        // Of a complex number each of the two.
        _ => bits.to_le_bytes().to_vec(),
    }
}

/// What the hypotheses say of the tensor `name` of two f32 runs, and the report on both.
pub(crate) fn examine_in(run: &[Recorded], name: &str) -> (Examination, Judged) {
    examine_as(DType::F32, run, name)
}

/// The same of two runs in bf16.
pub(crate) fn examine_bf16(run: &[Recorded], name: &str) -> Examination {
    examine_as(DType::Bf16, run, name).0
}

/// The same of two runs in one of f32, bf16 and i64.
pub(crate) fn examine_as(dtype: DType, run: &[Recorded], name: &str) -> (Examination, Judged) {
    examine_mixed([dtype; 2], run, name)
}

fn examine_mixed(dtypes: [DType; 2], run: &[Recorded], name: &str) -> (Examination, Judged) {
    let run: Vec<([DType; 2], &Recorded)> = run.iter().map(|one| (dtypes, one)).collect();
    with_run(&run, name, |case, report| (examine(case), report.clone()))
}

/// The same with a dtype for each tensor.
pub(crate) fn examine_each(run: &[(DType, Recorded)], name: &str) -> Examination {
    let run: Vec<([DType; 2], &Recorded)> =
        run.iter().map(|(dtype, one)| ([*dtype; 2], one)).collect();
    with_run(&run, name, |case, _| examine(case))
}

/// What a function makes of the case of one tensor alone.
pub(crate) fn with_case<T>(
    dims: &[usize],
    reference: Vec<f64>,
    candidate: Vec<f64>,
    then: impl FnOnce(&Case<'_>) -> T,
) -> T {
    let one = Recorded {
        name: "x",
        dims: dims.to_vec(),
        reference,
        candidate,
    };
    with_run(&[([DType::F32; 2], &one)], "x", |case, _| then(case))
}

fn with_run<T>(
    run: &[([DType; 2], &Recorded)],
    name: &str,
    then: impl FnOnce(&Case<'_>, &Judged) -> T,
) -> T {
    let reference = source(
        run.iter()
            .map(|(dtypes, one)| (dtypes[0], one.name, &one.dims[..], &one.reference[..])),
    );
    let candidate = source(
        run.iter()
            .map(|(dtypes, one)| (dtypes[1], one.name, &one.dims[..], &one.candidate[..])),
    );
    let (reference, candidate) = (Side::new(&reference), Side::new(&candidate));
    let settings = Settings::default();
    let plan = plan::plan(&reference, &candidate, &settings).unwrap();
    let parts = work::slots(&plan);
    work::measure(&plan, &reference, &candidate, &settings, &(), &parts);
    let report = facts::gather(
        &plan,
        work::taken(&parts),
        &reference,
        &candidate,
        &settings,
        None,
    );
    let scene = Scene::new(&plan, &reference, &candidate, &report.pairs);
    let at = report
        .pairs
        .iter()
        .position(|pair| pair.name == name)
        .unwrap();
    let loaded = scene.load(at).unwrap();
    then(&Case::new(&scene, at, &loaded), &report)
}

/// The whole report on two runs, with what was inherited, the causes and what is harmless.
pub(crate) fn report_as(dtype: DType, run: &[Recorded]) -> Judged {
    report_mixed([dtype; 2], run)
}

/// The same with a dtype for each side.
pub(crate) fn report_mixed(dtypes: [DType; 2], run: &[Recorded]) -> Judged {
    report_set(&Settings::default(), dtypes, run)
}

/// The same with settings.
pub(crate) fn report_set(settings: &Settings, dtypes: [DType; 2], run: &[Recorded]) -> Judged {
    let reference = source(
        run.iter()
            .map(|one| (dtypes[0], one.name, &one.dims[..], &one.reference[..])),
    );
    let candidate = source(
        run.iter()
            .map(|one| (dtypes[1], one.name, &one.dims[..], &one.candidate[..])),
    );
    crate::compare(&Sources::two(&reference, &candidate), settings).unwrap()
}

/// The same with a dtype for each tensor and side.
pub(crate) fn report_each_side(run: &[([DType; 2], Recorded)]) -> Judged {
    let reference = source(
        run.iter()
            .map(|(dtypes, one)| (dtypes[0], one.name, &one.dims[..], &one.reference[..])),
    );
    let candidate = source(
        run.iter()
            .map(|(dtypes, one)| (dtypes[1], one.name, &one.dims[..], &one.candidate[..])),
    );
    crate::compare(&Sources::two(&reference, &candidate), &Settings::default()).unwrap()
}

/// The same with a dtype for each tensor.
pub(crate) fn report_each(run: &[(DType, Recorded)]) -> Judged {
    let side = |values: fn(&Recorded) -> &[f64]| {
        source(
            run.iter()
                .map(|(dtype, one)| (*dtype, one.name, &one.dims[..], values(one))),
        )
    };
    let (reference, candidate) = (side(|one| &one.reference), side(|one| &one.candidate));
    crate::compare(&Sources::two(&reference, &candidate), &Settings::default()).unwrap()
}

/// The same for captured runs, which say what each tensor was computed from, by its place in the list; a dtype for each tensor.
pub(crate) fn report_of_flow(run: &[(DType, Recorded, &[usize])]) -> Judged {
    let side = |values: fn(&Recorded) -> &[f64]| {
        let mut lists = source(
            run.iter()
                .map(|(dtype, one, _)| (*dtype, one.name, &one.dims[..], values(one))),
        );
        for (at, (tensor, (_, _, inputs))) in lists.listing.tensors.iter_mut().zip(run).enumerate()
        {
            tensor.meta = serde_json::json!({"i": at, "inputs": inputs})
                .as_object()
                .cloned()
                .map(Box::new);
        }
        lists
    };
    let (reference, candidate) = (side(|one| &one.reference), side(|one| &one.candidate));
    crate::compare(&Sources::two(&reference, &candidate), &Settings::default()).unwrap()
}

/// The same for sides that hold other tensors, all of one shape and in f32.
pub(crate) fn report_apart(
    dims: &[usize],
    reference: &[(&str, Vec<f64>)],
    candidate: &[(&str, Vec<f64>)],
) -> Judged {
    let side = |tensors: &[(&str, Vec<f64>)]| {
        source(
            tensors
                .iter()
                .map(|(name, values)| (DType::F32, *name, dims, &values[..])),
        )
    };
    let (reference, candidate) = (side(reference), side(candidate));
    crate::compare(&Sources::two(&reference, &candidate), &Settings::default()).unwrap()
}

/// The same for one tensor alone.
pub(crate) fn examine_pair(
    dims: &[usize],
    reference: Vec<f64>,
    candidate: Vec<f64>,
) -> Examination {
    examine_in(
        &[Recorded {
            name: "x",
            dims: dims.to_vec(),
            reference,
            candidate,
        }],
        "x",
    )
    .0
}

/// The kind of the best explanation when it is proven.
pub(crate) fn proven(examination: &Examination) -> Option<&'static str> {
    // Shown when a test fails.
    for attempt in &examination.attempts {
        println!("{attempt:?}");
    }
    let best = examination
        .found
        .first()
        .filter(|found| found.score.proven)?;
    // By the list of kinds the name outlives the examination.
    let mut known = CauseKind::ALL.iter();
    known
        .find(|kind| **kind == best.explanation.kind)
        .map(CauseKind::name)
}

/// Normal numbers, the same for the same seed.
pub(crate) fn normal(count: usize, seed: u64) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut uniform = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        ((state >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    };
    (0..count)
        .map(|_| (-2.0 * uniform().ln()).sqrt() * (std::f64::consts::TAU * uniform()).cos())
        .collect()
}

/// The same for a candidate in bf16 whose values carry a little more noise than that of one rounding.
pub(crate) fn examine_noisy(
    dims: &[usize],
    reference: Vec<f64>,
    candidate: Vec<f64>,
) -> Examination {
    examine_noisy_in(
        &[Recorded {
            name: "x",
            dims: dims.to_vec(),
            reference,
            candidate,
        }],
        "x",
    )
}

/// The same for a tensor of a run.
pub(crate) fn examine_noisy_in(run: &[Recorded], name: &str) -> Examination {
    let noisy = |(seed, one): (usize, &Recorded)| {
        let noise = normal(one.candidate.len(), seed as u64 + 77);
        let candidate = one
            .candidate
            .iter()
            .zip(noise)
            .map(|(value, noise)| value * (1.0 + 0.002 * noise.clamp(-2.0, 2.0)))
            .collect();
        Recorded {
            name: one.name,
            dims: one.dims.clone(),
            reference: one.reference.clone(),
            candidate,
        }
    };
    let run: Vec<Recorded> = run.iter().enumerate().map(noisy).collect();
    examine_mixed([DType::F32, DType::Bf16], &run, name).0
}

/// The same for a candidate that is only recorded in bf16.
pub(crate) fn examine_pair_bf16(
    dims: &[usize],
    reference: Vec<f64>,
    candidate: Vec<f64>,
) -> Examination {
    examine_mixed(
        [DType::F32, DType::Bf16],
        &[Recorded {
            name: "x",
            dims: dims.to_vec(),
            reference,
            candidate,
        }],
        "x",
    )
    .0
}
