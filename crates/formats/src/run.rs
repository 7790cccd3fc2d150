//! A captured run: tensors in the order they were computed, as `capture` writes them (format `twinscope-run`, version 1).
//!
//! ```text
//! <run>/run.json                          what ran, where; optional
//! <run>/rank-00000/rank.json              which rank; optional
//! <run>/rank-00000/index.jsonl            one event a line, appended while the model runs
//! <run>/rank-00000/seg-00000.safetensors  payload, appended before its index line
//! ```
//!
//! The payload of a line is complete before the line is written, so a run is readable at any moment, also after its process
//! was killed: reading stops at the first line that is not whole, and says so when lines follow. A tensor's name is its
//! module path, then what sets it apart: the role unless it is an output, the place in a tuple or dict unless it is the only one,
//! `@call` from the second call on, `step-N/` from the second step on, `rank-N/` when there is more than one rank.

use crate::{
    contents::{Contents, Data, Entry},
    error::Fault,
    input::Context,
    map::map_file,
    safetensors,
};
use serde_json::{Map, Value};
use std::{
    collections::HashMap,
    path::{Path, PathBuf},
};
use twinscope_tensor::{Bytes, DType, FindingKind, Shape, View};

/// The version this reader understands.
const VERSION: u64 = 1;

/// Facts of an index line that are not part of [`Entry`] but worth keeping with the tensor.
const KEPT: [&str; 17] = [
    "role",
    "arg",
    "call",
    "step",
    "phase",
    "cls",
    "op",
    "ts",
    "dur",
    "stride",
    "dev",
    "dims",
    "placements",
    "global_shape",
    "hash",
    "inputs",
    "stats",
];

pub(crate) fn recognise_folder(path: &Path) -> bool {
    let announced = std::fs::read_to_string(path.join("run.json"))
        .ok()
        .and_then(|text| serde_json::from_str::<Value>(&text).ok())
        .is_some_and(|run| run["format"] == "twinscope-run");
    announced || ranks(path).iter().any(|rank| rank.join("index.jsonl").is_file())
}

/// The `rank-NNNNN` folders, in order of their number.
fn ranks(path: &Path) -> Vec<PathBuf> {
    let mut found: Vec<(u64, PathBuf)> = std::fs::read_dir(path)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| Some((entry.file_name().to_str()?.strip_prefix("rank-")?.parse().ok()?, entry.path())))
        .collect();
    found.sort();
    found.into_iter().map(|(_, path)| path).collect()
}

pub(crate) fn read_folder(path: &Path, context: &Context) -> Result<Contents, Fault> {
    let mut contents = Contents::new("run");
    contents.ordered = true;
    if let Ok(text) = std::fs::read_to_string(path.join("run.json")) {
        let run: Value = serde_json::from_str(&text).map_err(|error| Fault::BadHeader { what: format!("run.json: {error}") })?;
        if let Some(version) = run["version"].as_u64().filter(|version| *version > VERSION) {
            return Err(Fault::Unsupported { what: format!("version {version} of the run format; this program reads up to {VERSION}") });
        }
        contents.meta = run.as_object().cloned().map(Box::new);
    }
    let ranks = ranks(path);
    if ranks.is_empty() {
        return Err(Fault::Missing { what: "a `rank-00000` folder".to_owned() });
    }
    for (rank, folder) in ranks.iter().enumerate() {
        let prefix = if ranks.len() > 1 { format!("rank-{rank}/") } else { String::new() };
        Rank { folder, prefix, number: rank as u64, segments: HashMap::new() }.read(context, &mut contents);
    }
    Ok(contents)
}

struct Rank<'a> {
    folder: &'a Path,
    prefix: String,
    number: u64,
    /// The data part of each segment that an index line named, mapped once.
    segments: HashMap<u64, Result<Bytes, Fault>>,
}

impl Rank<'_> {
    fn read(mut self, context: &Context, contents: &mut Contents) {
        let index = match map_file(&self.folder.join("index.jsonl")) {
            Ok(bytes) => bytes,
            Err(error) => return contents.skip(format!("{}index.jsonl", self.prefix), Fault::Io { what: error.to_string() }),
        };
        // Where the tensor of a line came to lie, for lines that say "the same as line i".
        let mut seen: HashMap<u64, Bytes> = HashMap::new();
        let mut lines = index.split_inclusive(|byte| *byte == b'\n').enumerate();
        for (number, line) in lines.by_ref() {
            let Ok(Value::Object(event)) = serde_json::from_slice::<Value>(line) else {
                let rest = lines.count();
                if rest > 0 || line.ends_with(b"\n") {
                    let text =
                        format!("{}index.jsonl: line {} cannot be read; {rest} lines after it are left out", self.prefix, number + 1);
                    contents.find(FindingKind::Odd, text);
                }
                break;
            };
            if event.get("k").and_then(Value::as_str) == Some("t") {
                let name = self.name(&event);
                match self.tensor(&event, &mut seen, context) {
                    Ok((dtype, shape, bytes)) => {
                        let meta = Some(Box::new(self.meta(&event)));
                        contents.entries.push(Entry { name, dtype, shape, meta, data: Data::Plain(bytes) });
                    }
                    Err(fault) => contents.skip(name, fault),
                }
            }
        }
    }

    fn name(&self, event: &Map<String, Value>) -> String {
        let text = |key: &str| event.get(key).and_then(Value::as_str).unwrap_or_default();
        let number = |key: &str| event.get(key).and_then(Value::as_u64).unwrap_or(0);
        let mut name = self.prefix.clone();
        if number("step") > 0 {
            name += &format!("step-{}/", number("step"));
        }
        name += if text("name").is_empty() { "model" } else { text("name") };
        if !matches!(text("role"), "" | "out" | "tap" | "param") {
            name += &format!(".{}", text("role"));
        }
        if !matches!(text("arg"), "" | "0") {
            name += &format!(".{}", text("arg"));
        }
        if number("call") > 0 {
            name += &format!("@{}", number("call"));
        }
        name
    }

    fn meta(&self, event: &Map<String, Value>) -> Map<String, Value> {
        let mut meta: Map<String, Value> =
            KEPT.iter().filter_map(|key| Some(((*key).to_owned(), event.get(*key).filter(|value| !value.is_null())?.clone()))).collect();
        meta.insert("rank".to_owned(), self.number.into());
        meta
    }

    fn tensor(
        &mut self,
        event: &Map<String, Value>,
        seen: &mut HashMap<u64, Bytes>,
        context: &Context,
    ) -> Result<(DType, Shape, Bytes), Fault> {
        let dtype = event.get("ldtype").or_else(|| event.get("dtype")).and_then(Value::as_str).unwrap_or_default();
        let dtype =
            safetensors::dtype(dtype).or_else(|| DType::parse(dtype)).ok_or_else(|| Fault::BadDtype { what: format!("`{dtype}`") })?;
        let shape = shape(event.get("shape"), context.limits.rank)?;
        let bytes = if let Some(same) = event.get("same").and_then(Value::as_u64) {
            seen.get(&same).cloned().ok_or_else(|| Fault::Missing { what: format!("record {same}, which this one repeats") })?
        } else if let Some(why) = event.get("err").and_then(Value::as_str) {
            return Err(Fault::Missing { what: format!("the values; the recorder said: {why}") });
        } else {
            self.payload(event)?
        };
        View::new(dtype, shape.clone(), bytes.clone())?;
        if let Some(i) = event.get("i").and_then(Value::as_u64) {
            seen.insert(i, bytes.clone());
        }
        Ok((dtype, shape, bytes))
    }

    fn payload(&mut self, event: &Map<String, Value>) -> Result<Bytes, Fault> {
        let bad = |what: &str| Fault::BadHeader { what: format!("a tensor line without `{what}`") };
        let number = event.get("seg").and_then(Value::as_u64).ok_or_else(|| bad("seg"))?;
        let range = event.get("off").and_then(Value::as_array).ok_or_else(|| bad("off"))?;
        let [begin, end] = range.as_slice() else { return Err(bad("off: [begin, end]")) };
        let (begin, end) = (begin.as_u64().ok_or_else(|| bad("off"))?, end.as_u64().ok_or_else(|| bad("off"))?);
        let folder = self.folder;
        let segment = self.segments.entry(number).or_insert_with(|| segment(&folder.join(format!("seg-{number:05}.safetensors"))));
        let data = segment.as_ref().map_err(Clone::clone)?;
        data.slice(begin..end)
            .ok_or_else(|| Fault::Truncated { what: format!("it ends at byte {end} of segment {number}, which has {}", data.len()) })
    }
}

/// The bytes behind a segment's header, whatever the header says by now: it is only written when the segment is closed.
fn segment(path: &Path) -> Result<Bytes, Fault> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let bytes = map_file(path).map_err(|error| Fault::Missing { what: format!("`{name}`: {error}") })?;
    let header = bytes.get(..8).map(|len| u64::from_le_bytes(len.try_into().expect("eight bytes")));
    header
        .and_then(|len| bytes.slice(len.checked_add(8)?..bytes.len() as u64))
        .ok_or_else(|| Fault::Truncated { what: format!("`{name}` is {} bytes long", bytes.len()) })
}

fn shape(value: Option<&Value>, rank: usize) -> Result<Shape, Fault> {
    let dims = value.and_then(Value::as_array).ok_or_else(|| Fault::BadShape { what: "no `shape`".to_owned() })?;
    if dims.len() > rank {
        return Err(Fault::BadShape { what: format!("{} dimensions, at most {rank} are read", dims.len()) });
    }
    let dims: Option<Vec<u64>> = dims.iter().map(Value::as_u64).collect();
    dims.map(Shape::from).ok_or_else(|| Fault::BadShape { what: "a size that is no whole number".to_owned() })
}
