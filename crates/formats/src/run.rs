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
//! module path, then what sets it apart: the role unless it is an output (of an op: the op's name), the place in a tuple or dict unless it
//! is the only one, `@call` from the second call on, `step-N/` from the second step on, `rank-N/` when there is more than one rank.
//!
//! What an index line says besides is the tensor's meta, under the same keys: `i` is the record's number in its `rank`, and `inputs` are
//! the numbers of the records of that rank that it was computed from. What the ranks came to is `ranks` in the source's meta.

use crate::{
    contents::{Contents, Data, Entry},
    error::Fault,
    input::Context,
    map::map_file,
    names, safetensors,
};
use serde_json::{Map, Value};
use std::{collections::HashMap, path::Path};
use twinscope_tensor::{Bytes, DType, FindingKind, Shape, View};

/// The version this reader understands.
const VERSION: u64 = 1;

/// Facts of an index line that are not part of [`Entry`] but worth keeping with the tensor.
const KEPT: [&str; 19] = [
    "i",
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
    "same",
    "stats",
];

pub(crate) fn recognise_folder(path: &Path) -> bool {
    let announced = std::fs::read_to_string(path.join("run.json"))
        .ok()
        .and_then(|text| serde_json::from_str::<Value>(&text).ok())
        .is_some_and(|run| run["format"] == "twinscope-run");
    announced
        || ranks(path)
            .iter()
            .any(|(_, rank)| path.join(rank).join("index.jsonl").is_file())
}

/// The `rank-NNNNN` folders with their numbers, in order.
fn ranks(path: &Path) -> Vec<(u64, String)> {
    let names = std::fs::read_dir(path)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok());
    let mut found: Vec<(u64, String)> = names
        .filter_map(|name| Some((rank_number(&name)?, name)))
        .collect();
    found.sort();
    found
}

fn rank_number(folder: &str) -> Option<u64> {
    folder.strip_prefix("rank-")?.parse().ok()
}

pub(crate) fn read_folder(path: &Path, context: &Context) -> Result<Contents, Fault> {
    let open = |name: &str| {
        map_file(&path.join(name)).map_err(|error| Fault::Missing {
            what: format!("`{name}`: {error}"),
        })
    };
    read_files(
        &Files {
            ranks: ranks(path),
            open: &open,
        },
        context,
    )
}

/// The run that a member of an archive belongs to, when it is one of a run's own files: the run's path, and the file's in it.
pub(crate) fn file_of_run(path: &str) -> Option<(&str, &str)> {
    let (dir, file) = names::split_folder(path);
    if file == "run.json" {
        return Some((dir, file));
    }
    let (run, rank) = names::split_folder(dir);
    rank_number(rank)?;
    let segment = file.starts_with("seg-") && file.ends_with(".safetensors");
    let start = if run.is_empty() { 0 } else { run.len() + 1 };
    (segment || matches!(file, "index.jsonl" | "rank.json")).then(|| (run, &path[start..]))
}

/// The files of a run, by their path in it.
pub(crate) struct Files<'a> {
    /// The ranks' numbers and folders, in order.
    ranks: Vec<(u64, String)>,
    open: &'a dyn Fn(&str) -> Result<Bytes, Fault>,
}

impl<'a> Files<'a> {
    /// `None` when no rank has an index: then it is no run.
    pub(crate) fn new<'b>(
        names: impl Iterator<Item = &'b str>,
        open: &'a dyn Fn(&str) -> Result<Bytes, Fault>,
    ) -> Option<Self> {
        let folders = names.filter_map(|name| name.strip_suffix("/index.jsonl"));
        let mut ranks: Vec<(u64, String)> = folders
            .filter_map(|folder| Some((rank_number(folder)?, folder.to_owned())))
            .collect();
        ranks.sort();
        (!ranks.is_empty()).then_some(Self { ranks, open })
    }
}

pub(crate) fn read_files(files: &Files<'_>, context: &Context) -> Result<Contents, Fault> {
    let mut contents = Contents::new("run");
    contents.ordered = true;
    if let Ok(text) = (files.open)("run.json") {
        let run: Value = serde_json::from_slice(&text).map_err(|error| Fault::BadHeader {
            what: format!("run.json: {error}"),
        })?;
        if let Some(version) = run["version"].as_u64().filter(|version| *version > VERSION) {
            return Err(Fault::Unsupported {
                what: format!(
                    "version {version} of the run format; this program reads up to {VERSION}"
                ),
            });
        }
        contents.meta = run.as_object().cloned().map(Box::new);
    }
    let ranks = &files.ranks;
    if ranks.is_empty() {
        return Err(Fault::Missing {
            what: "a `rank-00000` folder".to_owned(),
        });
    }
    let mut told = Vec::new();
    for (number, folder) in ranks {
        let prefix = if ranks.len() > 1 {
            format!("rank-{number}/")
        } else {
            String::new()
        };
        let about = about(files, folder, *number);
        let rank = Rank {
            files,
            folder,
            prefix,
            number: *number,
            segments: HashMap::new(),
            about,
        };
        told.push(Value::Object(rank.read(context, &mut contents)));
    }
    let mut meta = contents.meta.take().unwrap_or_default();
    if let Some(world) = meta
        .get("world_size")
        .and_then(Value::as_u64)
        .filter(|world| *world > ranks.len() as u64)
    {
        contents.find(
            FindingKind::Odd,
            format!("{} of {world} ranks are here", ranks.len()),
        );
    }
    meta.insert("ranks".to_owned(), told.into());
    contents.meta = Some(meta);
    Ok(contents)
}

/// `rank.json`, where it can be read; it is told, nothing depends on it.
fn about(files: &Files<'_>, folder: &str, number: u64) -> Map<String, Value> {
    let text = (files.open)(&format!("{folder}/rank.json"));
    let mut about: Map<String, Value> = text
        .ok()
        .and_then(|text| serde_json::from_slice(&text).ok())
        .unwrap_or_default();
    about.insert("rank".to_owned(), number.into());
    about
}

struct Rank<'a> {
    files: &'a Files<'a>,
    folder: &'a str,
    prefix: String,
    number: u64,
    /// The data part of each segment that an index line named, mapped once.
    segments: HashMap<u64, Result<Bytes, Fault>>,
    /// What `rank.json` says, and whether the rank came to its end.
    about: Map<String, Value>,
}

impl Rank<'_> {
    fn read(mut self, context: &Context, contents: &mut Contents) -> Map<String, Value> {
        self.about.insert("complete".to_owned(), false.into());
        let index = match (self.files.open)(&format!("{}/index.jsonl", self.folder)) {
            Ok(bytes) => bytes,
            Err(fault) => {
                contents.skip(format!("{}index.jsonl", self.prefix), fault);
                return self.about;
            }
        };
        // Where the tensor of a line came to lie, for lines that say "the same as line i".
        let mut seen: HashMap<u64, Bytes> = HashMap::new();
        let mut lines = index.split_inclusive(|byte| *byte == b'\n').enumerate();
        for (number, line) in lines.by_ref() {
            let Ok(Value::Object(event)) = serde_json::from_slice::<Value>(line) else {
                let rest = lines.count();
                if rest > 0 || line.ends_with(b"\n") {
                    let text = format!(
                        "{}index.jsonl: line {} cannot be read; {rest} lines after it are left out",
                        self.prefix,
                        number + 1
                    );
                    contents.find(FindingKind::Odd, text);
                }
                break;
            };
            let kind = event.get("k").and_then(Value::as_str);
            if kind == Some("end") {
                self.end(&event, contents);
            } else if kind == Some("t") {
                let name = self.name(&event);
                match self.tensor(&event, &mut seen, context) {
                    Ok((dtype, shape, bytes)) => {
                        let meta = Some(Box::new(self.meta(&event)));
                        contents.entries.push(Entry {
                            name,
                            dtype,
                            shape,
                            meta,
                            data: Data::Plain(bytes),
                        });
                    }
                    Err(fault) => contents.skip(name, fault),
                }
            }
        }
        self.about
    }

    /// The line of a recorder that came to its end, with what it could not keep.
    fn end(&mut self, event: &Map<String, Value>, contents: &mut Contents) {
        self.about.insert("complete".to_owned(), true.into());
        let dropped = event.get("dropped").and_then(Value::as_u64).unwrap_or(0);
        self.about.insert("dropped".to_owned(), dropped.into());
        if dropped > 0 {
            let why = event
                .get("err")
                .and_then(Value::as_str)
                .map(|why| format!(": {why}"))
                .unwrap_or_default();
            contents.find(
                FindingKind::Odd,
                format!(
                    "{}the recorder could not keep {dropped} tensors{why}",
                    self.prefix
                ),
            );
        }
    }

    fn name(&self, event: &Map<String, Value>) -> String {
        let text = |key: &str| event.get(key).and_then(Value::as_str).unwrap_or_default();
        let number = |key: &str| event.get(key).and_then(Value::as_u64).unwrap_or(0);
        let mut name = self.prefix.clone();
        if number("step") > 0 {
            name += &format!("step-{}/", number("step"));
        }
        name += if text("name").is_empty() {
            "model"
        } else {
            text("name")
        };
        match text("role") {
            "" | "out" | "tap" | "param" => {}
            "op" if !text("op").is_empty() => name += &format!(".{}", text("op")),
            role => name += &format!(".{role}"),
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
        let mut meta: Map<String, Value> = KEPT
            .iter()
            .filter_map(|key| {
                Some((
                    (*key).to_owned(),
                    event.get(*key).filter(|value| !value.is_null())?.clone(),
                ))
            })
            .collect();
        meta.insert("rank".to_owned(), self.number.into());
        meta
    }

    fn tensor(
        &mut self,
        event: &Map<String, Value>,
        seen: &mut HashMap<u64, Bytes>,
        context: &Context,
    ) -> Result<(DType, Shape, Bytes), Fault> {
        let dtype = event
            .get("ldtype")
            .or_else(|| event.get("dtype"))
            .and_then(Value::as_str)
            .unwrap_or_default();
        let dtype = safetensors::dtype(dtype)
            .or_else(|| DType::parse(dtype))
            .ok_or_else(|| Fault::BadDtype {
                what: format!("`{dtype}`"),
            })?;
        let shape = shape(event.get("shape"), context.limits.rank)?;
        let bytes = if let Some(same) = event.get("same").and_then(Value::as_u64) {
            seen.get(&same).cloned().ok_or_else(|| Fault::Missing {
                what: format!("record {same}, which this one repeats"),
            })?
        } else if let Some(why) = event.get("err").and_then(Value::as_str) {
            return Err(Fault::Missing {
                what: format!("the values; the recorder said: {why}"),
            });
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
        let bad = |what: &str| Fault::BadHeader {
            what: format!("a tensor line without `{what}`"),
        };
        let number = event
            .get("seg")
            .and_then(Value::as_u64)
            .ok_or_else(|| bad("seg"))?;
        let range = event
            .get("off")
            .and_then(Value::as_array)
            .ok_or_else(|| bad("off"))?;
        let [begin, end] = range.as_slice() else {
            return Err(bad("off: [begin, end]"));
        };
        let (begin, end) = (
            begin.as_u64().ok_or_else(|| bad("off"))?,
            end.as_u64().ok_or_else(|| bad("off"))?,
        );
        let (files, folder) = (self.files, self.folder);
        let segment = self
            .segments
            .entry(number)
            .or_insert_with(|| segment(files, &format!("{folder}/seg-{number:05}.safetensors")));
        let data = segment.as_ref().map_err(Clone::clone)?;
        data.slice(begin..end).ok_or_else(|| Fault::Truncated {
            what: format!(
                "it ends at byte {end} of segment {number}, which has {}",
                data.len()
            ),
        })
    }
}

/// The bytes behind a segment's header, whatever the header says by now: it is only written when the segment is closed.
fn segment(files: &Files<'_>, name: &str) -> Result<Bytes, Fault> {
    let bytes = (files.open)(name)?;
    let header = bytes
        .get(..8)
        .map(|len| u64::from_le_bytes(len.try_into().expect("eight bytes")));
    header
        .and_then(|len| bytes.slice(len.checked_add(8)?..bytes.len() as u64))
        .ok_or_else(|| Fault::Truncated {
            what: format!("`{name}` is {} bytes long", bytes.len()),
        })
}

fn shape(value: Option<&Value>, rank: usize) -> Result<Shape, Fault> {
    let dims = value
        .and_then(Value::as_array)
        .ok_or_else(|| Fault::BadShape {
            what: "no `shape`".to_owned(),
        })?;
    if dims.len() > rank {
        return Err(Fault::BadShape {
            what: format!("{} dimensions, at most {rank} are read", dims.len()),
        });
    }
    let dims: Option<Vec<u64>> = dims.iter().map(Value::as_u64).collect();
    dims.map(Shape::from).ok_or_else(|| Fault::BadShape {
        what: "a size that is no whole number".to_owned(),
    })
}
