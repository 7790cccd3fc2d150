//! A finished run in memory: a source like any file, its tensors in the order they were computed.

use crate::{
    arithmetic,
    faults::Break,
    forward::{Recorded, pass},
    spec::{Record, Spec, SpecError},
};
use serde_json::{Map, Value};
use std::path::Path;
use twinscope_capture::{CaptureError, Phase, Rank, Record as Line, Role, RunInfo, RunWriter};
use twinscope_tensor::{Bytes, Listing, ReadError, Shape, TensorInfo, TensorSource, View};

/// What a run recorded.
#[derive(Clone, Debug)]
pub struct Run {
    listing: Listing,
    data: Vec<Bytes>,
    /// Tensors without their rank's prefix, rank by rank.
    lines: Vec<Vec<Line>>,
    model: String,
}

/// Runs the demo transformer.
pub fn run(spec: &Spec) -> Result<Run, SpecError> {
    spec.check()?;
    let mut spec = spec.clone();
    for planted in spec.faults.clone() {
        for change in planted.fault.breaks() {
            if let Break::Spec(of) = change {
                of(&mut spec);
            }
        }
    }
    let mut run = Run {
        listing: Listing {
            source: title(&spec),
            format: "demo",
            ..Listing::default()
        },
        data: Vec::new(),
        lines: vec![Vec::new(); spec.ranks],
        model: spec.model.to_string(),
    };
    for rank in 0..spec.ranks {
        let prefix = if spec.ranks > 1 {
            format!("rank-{rank}/")
        } else {
            String::new()
        };
        pass(&spec, rank)
            .into_iter()
            .for_each(|recorded| run.push(&prefix, rank, recorded, spec.record));
    }
    Ok(run)
}

/// What a run is called: `demo`, or the faults planted in it.
fn title(spec: &Spec) -> String {
    let faults: Vec<String> = spec
        .faults
        .iter()
        .map(|planted| planted.fault.name.to_owned())
        .collect();
    if faults.is_empty() {
        "demo".to_owned()
    } else {
        format!("demo with {}", faults.join(" and "))
    }
}

impl Run {
    /// How many ranks are recorded; names begin with `rank-N/` when there is more than one.
    pub fn ranks(&self) -> usize {
        self.lines.len()
    }

    /// Called so from now on.
    pub fn named(mut self, name: &str) -> Self {
        self.listing.source = name.to_owned();
        self
    }

    /// Writes it as a captured run, into a folder that holds none yet.
    pub fn write(&self, folder: &Path) -> Result<(), CaptureError> {
        let info = RunInfo {
            label: Some(self.listing.source.clone()),
            model: Some(self.model.clone()),
            ..RunInfo::default()
        };
        let mut data = self.data.iter();
        for (rank, lines) in self.lines.iter().enumerate() {
            let mut writer = RunWriter::create(
                folder,
                &info,
                &Rank::new(rank as u64, self.lines.len() as u64),
            )?;
            for (line, bytes) in lines.iter().zip(data.by_ref()) {
                writer.tensor(line, bytes.as_slice())?;
            }
            writer.finish()?;
        }
        Ok(())
    }

    fn push(&mut self, prefix: &str, rank: usize, recorded: Recorded, level: Record) {
        let bytes = arithmetic::bytes(recorded.dtype, &recorded.array.values);
        let dims: Vec<u64> = recorded.array.shape.iter().map(|dim| *dim as u64).collect();
        let line = line(&recorded, dims.clone());
        self.listing.tensors.push(TensorInfo {
            name: format!("{prefix}{}", recorded.name),
            dtype: recorded.dtype,
            shape: Shape::from(dims),
            bytes: Some(bytes.len() as u64),
            meta: (level == Record::Full)
                .then(|| Box::new(meta(&line, self.lines[rank].len(), rank))),
        });
        self.lines[rank].push(line);
        self.data.push(bytes.into());
    }
}

/// What a recorder writes down of a tensor.
fn line(recorded: &Recorded, dims: Vec<u64>) -> Line {
    let line = Line::new(recorded.name.clone(), recorded.dtype, dims);
    if recorded.param {
        return line.role(Role::Weight).phase(Phase::Weights);
    }
    line.phase(Phase::Forward).op(recorded.op).inputs(
        recorded
            .inputs
            .iter()
            .map(|input| *input as u64)
            .collect::<Vec<_>>(),
    )
}

/// The facts that the reader of captured runs gives of such a line, under the same keys.
fn meta(line: &Line, i: usize, rank: usize) -> Map<String, Value> {
    let mut meta = Map::new();
    let mut put = |key: &str, value: Value| meta.insert(key.to_owned(), value);
    put("i", i.into());
    put("rank", rank.into());
    put("role", line.role.name().into());
    if let Some(phase) = line.phase {
        put("phase", phase.name().into());
    }
    if let Some(op) = &line.op {
        put("op", op.as_str().into());
    }
    if !line.inputs.is_empty() {
        put("inputs", line.inputs.clone().into());
    }
    meta
}

impl TensorSource for Run {
    fn listing(&self) -> &Listing {
        &self.listing
    }

    fn view(&self, index: usize) -> Result<View, ReadError> {
        let info = &self.listing.tensors[index];
        Ok(View::new(
            info.dtype,
            info.shape.clone(),
            self.data[index].clone(),
        )?)
    }
}
