//! The ways the demo can be broken. A fault is a row of a table: its name, what it is in the wild, where it shows first, which causes
//! are a right answer, and what it changes.
//!
//! The kinds are those of the report. None means that the place can be found but the cause cannot be told from what is recorded; the
//! comment beside such a fault says why.

mod attention;
mod benign;
mod capture;
mod experts;
mod feed_forward;
mod harmless;
mod input;
mod need;
mod norm;
mod precision;
mod projection;
mod residual;
mod rope;
mod transform;

pub(crate) use need::Need;

use crate::{
    array::Array,
    forward::Recorded,
    plan::{Layer, Plan},
    spec::{Model, Record, Spec, SpecError},
    weights::{Weights, weight_name},
};

/// What a comparison must say about a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// Rounding, or another layout: no divergence at all.
    Benign,
    /// Different where it is planted, the same again further down.
    Harmless,
    /// The run is right, its record is not: the place and the cause count, not the word for it.
    Misrecorded,
    /// The shapes cannot be lined up.
    Incomparable,
    /// A bug.
    Diverged,
}

impl Outcome {
    pub fn name(self) -> &'static str {
        match self {
            Self::Benign => "benign",
            Self::Harmless => "harmless",
            Self::Misrecorded => "misrecorded",
            Self::Incomparable => "incomparable",
            Self::Diverged => "diverged",
        }
    }
}

/// A tensor of the run, in words that hold for every model.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    /// One that is not part of a layer.
    Whole(&'static str),
    /// A stage of the layer the fault is planted in.
    Stage(&'static str),
    /// Queries, keys or values as they leave the projection: a model with a fused one shows it there first.
    Projected(&'static str),
    /// The same stage of the first layer, for what concerns them all.
    FirstLayer(&'static str),
    /// The feed-forward's first product.
    FeedForward,
}

impl Place {
    fn name(self, spec: &Spec, layer: usize) -> String {
        match self {
            Self::Whole(name) => name.to_owned(),
            Self::Projected(_) if spec.model == Model::Gpt2 => format!("{layer}_qkv"),
            Self::Stage(stage) | Self::Projected(stage) => format!("{layer}_{stage}"),
            Self::FirstLayer(stage) => format!("0_{stage}"),
            Self::FeedForward if spec.model == Model::Gpt2 => format!("{layer}_up"),
            Self::FeedForward => format!("{layer}_gate"),
        }
    }
}

/// What a fault may look at while it does its work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scene<'a> {
    pub(crate) spec: &'a Spec,
    pub(crate) layer: usize,
    pub(crate) rank: usize,
    /// What is recorded so far.
    pub(crate) records: &'a [Recorded],
}

impl Scene<'_> {
    /// A stage that has been recorded before.
    pub(crate) fn stage(&self, layer: usize, stage: &str) -> &Array {
        self.whole(&format!("{layer}_{stage}"))
    }

    pub(crate) fn whole(&self, name: &str) -> &Array {
        &self
            .records
            .iter()
            .find(|record| record.name == name)
            .unwrap_or_else(|| panic!("`{name}` is not recorded yet"))
            .array
    }

    /// The layer's plan.
    pub(crate) fn of<'a>(&self, plan: &'a mut Plan) -> &'a mut Layer {
        &mut plan.layers[self.layer]
    }
}

/// What a fault changes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Break {
    /// The whole run of the candidate.
    Spec(fn(&mut Spec)),
    /// Weights as they are loaded.
    Weights(fn(&mut Weights, &Scene<'_>)),
    /// How ops compute.
    Plan(fn(&mut Plan, &Scene<'_>)),
    /// What a stage came to.
    Output(&'static str, fn(&mut Array, &Scene<'_>)),
    /// What was written down, after all was computed.
    Records(fn(&mut Vec<Recorded>, &Scene<'_>)),
}

/// One way to be wrong.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    pub name: &'static str,
    /// One line: what happened.
    pub about: &'static str,
    pub outcome: Outcome,
    place: Place,
    kinds: &'static [&'static str],
    /// The weight that is wrong already, and what the causes are when weights are recorded.
    loaded: Option<(&'static str, &'static [&'static str])>,
    /// Where a harmless one agrees again.
    again: Option<Place>,
    breaks: &'static [Break],
    needs: &'static [Need],
    scene: Option<fn(&mut Spec, usize)>,
}

impl Fault {
    const fn diverged(
        name: &'static str,
        about: &'static str,
        place: Place,
        kinds: &'static [&'static str],
        breaks: &'static [Break],
    ) -> Self {
        let outcome = Outcome::Diverged;
        Self {
            name,
            about,
            outcome,
            place,
            kinds,
            loaded: None,
            again: None,
            breaks,
            needs: &[],
            scene: None,
        }
    }

    const fn harmless(
        name: &'static str,
        about: &'static str,
        (place, again): (Place, Place),
        kinds: &'static [&'static str],
        breaks: &'static [Break],
    ) -> Self {
        Self {
            outcome: Outcome::Harmless,
            again: Some(again),
            ..Self::diverged(name, about, place, kinds, breaks)
        }
    }

    const fn misrecorded(
        name: &'static str,
        about: &'static str,
        place: Place,
        kinds: &'static [&'static str],
        breaks: &'static [Break],
    ) -> Self {
        Self {
            outcome: Outcome::Misrecorded,
            ..Self::diverged(name, about, place, kinds, breaks)
        }
    }

    const fn benign(name: &'static str, about: &'static str, breaks: &'static [Break]) -> Self {
        Self {
            outcome: Outcome::Benign,
            ..Self::diverged(name, about, Place::Whole("logits"), &[], breaks)
        }
    }

    const fn needs(self, needs: &'static [Need]) -> Self {
        Self { needs, ..self }
    }

    const fn loaded(self, key: &'static str, kinds: &'static [&'static str]) -> Self {
        Self {
            loaded: Some((key, kinds)),
            ..self
        }
    }

    const fn scene(self, scene: fn(&mut Spec, usize)) -> Self {
        Self {
            scene: Some(scene),
            ..self
        }
    }

    /// The fault of that name.
    pub fn named(name: &str) -> Option<&'static Self> {
        FAULTS.iter().find(|fault| fault.name == name)
    }

    /// The tensor where it shows first, planted in this layer. A benign one shows nowhere; then this is the end of the run.
    pub fn first(&self, spec: &Spec, layer: usize) -> String {
        let weight = self
            .loaded
            .filter(|_| spec.record == Record::Full)
            .and_then(|(key, _)| {
                // Keys and values lie in the same weight as the queries where they are fused.
                weight_name(spec.model, Some(layer), key)
                    .or_else(|| weight_name(spec.model, Some(layer), "q"))
            });
        weight.unwrap_or_else(|| self.place.name(spec, layer))
    }

    /// Where it agrees again, for one that is harmless.
    pub fn agrees_at(&self, spec: &Spec, layer: usize) -> Option<String> {
        Some(self.again?.name(spec, layer))
    }

    /// The causes that are a right answer, the best first. Empty: not tellable from what is recorded.
    pub fn kinds(&self, spec: &Spec) -> &'static [&'static str] {
        match self.loaded {
            Some((_, kinds)) if spec.record == Record::Full => kinds,
            _ => self.kinds,
        }
    }

    /// Whether it can be planted there, and if not, what it needs.
    pub fn check(&self, spec: &Spec, layer: usize) -> Result<(), SpecError> {
        let missing = self.needs.iter().find(|need| !need.met(spec, layer));
        missing.map_or(Ok(()), |need| {
            Err(SpecError::NotHere {
                fault: self.name,
                need: need.words(),
            })
        })
    }

    /// The models it can be planted in, all else as it is.
    pub fn models(&self, spec: &Spec, layer: usize) -> Vec<Model> {
        Model::ALL
            .into_iter()
            .filter(|model| {
                self.check(
                    &Spec {
                        model: *model,
                        ..spec.clone()
                    },
                    layer,
                )
                .is_ok()
            })
            .collect()
    }

    /// Makes the model, on both sides, one in which the fault can show.
    pub(crate) fn set_scene(&self, spec: &mut Spec, layer: usize) {
        if let Some(scene) = self.scene {
            scene(spec, layer);
        }
    }

    pub(crate) fn breaks(&self) -> &'static [Break] {
        self.breaks
    }
}

const GROUPS: [&[Fault]; 12] = [
    input::FAULTS,
    norm::FAULTS,
    projection::FAULTS,
    rope::FAULTS,
    attention::FAULTS,
    residual::FAULTS,
    feed_forward::FAULTS,
    precision::FAULTS,
    experts::FAULTS,
    capture::FAULTS,
    harmless::FAULTS,
    benign::FAULTS,
];

const COUNT: usize = {
    let (mut count, mut group) = (0, 0);
    while group < GROUPS.len() {
        count += GROUPS[group].len();
        group += 1;
    }
    count
};

/// Every fault there is, roughly in the order a run meets them.
pub static FAULTS: [Fault; COUNT] = {
    let mut all = [GROUPS[0][0]; COUNT];
    let (mut at, mut group) = (0, 0);
    while group < GROUPS.len() {
        let mut member = 0;
        while member < GROUPS[group].len() {
            all[at] = GROUPS[group][member];
            at += 1;
            member += 1;
        }
        group += 1;
    }
    all
};
