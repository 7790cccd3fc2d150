//! Sources from `Vec`s, for the tests of the rules.

use crate::{
    Settings,
    pairing::{Pairing, pair},
    settings::Rule,
    side::Side,
};
use twinscope_tensor::{DType, Listing, Meta, ReadError, Shape, TensorInfo, TensorSource, View};

pub(super) struct Source {
    listing: Listing,
    bytes: Vec<Vec<u8>>,
}

impl TensorSource for Source {
    fn listing(&self) -> &Listing {
        &self.listing
    }

    fn view(&self, index: usize) -> Result<View, ReadError> {
        let tensor = &self.listing.tensors[index];
        if self.bytes[index].is_empty() && tensor.shape.elements() != Some(0) {
            return Err(ReadError::NoData { why: "a test" });
        }
        Ok(View::new(
            tensor.dtype,
            tensor.shape.clone(),
            self.bytes[index].clone().into(),
        )?)
    }
}

impl Source {
    pub(super) fn new() -> Self {
        Self {
            listing: Listing::default(),
            bytes: Vec::new(),
        }
    }

    pub(super) fn with(mut self, name: &str, dtype: DType, dims: &[u64], bytes: Vec<u8>) -> Self {
        self.listing.tensors.push(TensorInfo {
            name: name.to_owned(),
            dtype,
            shape: Shape::new(dims),
            bytes: None,
            meta: None,
        });
        self.bytes.push(bytes);
        self
    }

    pub(super) fn f32(self, name: &str, dims: &[u64], values: &[f32]) -> Self {
        self.with(
            name,
            DType::F32,
            dims,
            values
                .iter()
                .flat_map(|value| value.to_le_bytes())
                .collect(),
        )
    }

    /// The last one's meta.
    pub(super) fn meta(mut self, meta: serde_json::Value) -> Self {
        let serde_json::Value::Object(map) = meta else {
            panic!("meta is an object")
        };
        self.listing.tensors.last_mut().unwrap().meta = Meta::Some(Box::new(map));
        self
    }

    /// Headers only.
    pub(super) fn shaped(tensors: &[(&str, &[u64])]) -> Self {
        tensors.iter().fold(Self::new(), |source, (name, dims)| {
            source.with(name, DType::F32, dims, Vec::new())
        })
    }

    pub(super) fn named<S: AsRef<str>>(names: &[S]) -> Self {
        names.iter().fold(Self::new(), |source, name| {
            source.with(name.as_ref(), DType::F32, &[2], Vec::new())
        })
    }
}

pub(super) fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

pub(super) fn settings(rules: &[Rule]) -> Settings {
    Settings {
        rules: rules.to_vec(),
        ..Settings::default()
    }
}

/// Pairs as `a+b=c`, and everything.
pub(super) fn result(
    settings: &Settings,
    reference: &Source,
    candidate: &Source,
) -> (Vec<String>, Pairing) {
    let (reference, candidate) = (Side::new(reference), Side::new(candidate));
    let pairing = pair(&reference, &candidate, settings).unwrap();
    let join = |side: &Side<'_>, items: &[usize]| {
        items
            .iter()
            .map(|item| side.items()[*item].name.as_str())
            .collect::<Vec<_>>()
            .join("+")
    };
    let pairs = pairing
        .pairs
        .iter()
        .map(|pair| {
            format!(
                "{}={}",
                join(&reference, &pair.reference),
                join(&candidate, &pair.candidate)
            )
        })
        .collect();
    exactly_once(&reference, &candidate, &pairing);
    (pairs, pairing)
}

/// Every item of both sides is in exactly one place, whatever a test is about.
fn exactly_once(reference: &Side<'_>, candidate: &Side<'_>, pairing: &Pairing) {
    let mut places = [
        vec![0; reference.items().len()],
        vec![0; candidate.items().len()],
    ];
    for pair in &pairing.pairs {
        assert!(!pair.reference.is_empty() && !pair.candidate.is_empty());
        assert!((0.0..=1.0).contains(&pair.score), "{pair:?}");
        pair.reference.iter().for_each(|item| places[0][*item] += 1);
        pair.candidate.iter().for_each(|item| places[1][*item] += 1);
    }
    pairing
        .only_reference
        .iter()
        .for_each(|left| places[0][left.item] += 1);
    pairing
        .only_candidate
        .iter()
        .for_each(|left| places[1][left.item] += 1);
    (0..2).for_each(|side| {
        pairing.left_out[side]
            .iter()
            .for_each(|item| places[side][*item] += 1);
    });
    assert!(
        places.iter().flatten().all(|count| *count == 1),
        "{places:?}"
    );
    // Ranks run at the same time: what tensors come in the order of is where the first of their shards is.
    let mut first = vec![None; reference.items().len()];
    for unit in super::ranks::units(reference.items(), |_| true) {
        unit.items
            .iter()
            .for_each(|item| first[*item] = unit.items.iter().min().copied());
    }
    assert!(
        pairing.pairs.is_sorted_by_key(|pair| pair
            .reference
            .iter()
            .filter_map(|item| first[*item])
            .min()),
        "in the reference's order"
    );
}

pub(super) fn paired_with(
    settings: &Settings,
    reference: &[String],
    candidate: &[String],
) -> (Vec<String>, Pairing) {
    result(
        settings,
        &Source::named(reference),
        &Source::named(candidate),
    )
}

pub(super) fn paired(rules: &[Rule], reference: &[&str], candidate: &[&str]) -> Vec<String> {
    paired_with(&settings(rules), &names(reference), &names(candidate)).0
}
