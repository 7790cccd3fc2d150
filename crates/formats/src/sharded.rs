//! `*.index.json`: which shard each tensor of a model is in. The shards lie beside it and nowhere else.
//!
//! The shards are read like any other file; the index then says what is missing from them and what they have beyond it.

use crate::{
    bundle::{self, Load, Member, Part},
    contents::Contents,
    error::Fault,
    folder,
    input::{Context, Input},
    limits::Limits,
    names,
};
use serde_json::Value;
use std::{
    collections::{BTreeMap, HashSet},
    path::Path,
};
use twinscope_tensor::FindingKind;

pub(crate) fn is_index_name(file: &str) -> bool {
    file.ends_with(".index.json")
}

pub(crate) fn recognise(input: &Input) -> bool {
    is_index_name(&input.name) || (input.extension() == "json" && has_weight_map(&input.bytes))
}

fn has_weight_map(bytes: &[u8]) -> bool {
    let head = &bytes[..bytes.len().min(4096)];
    head.trim_ascii_start().starts_with(b"{")
        && head.windows(12).any(|word| word == b"\"weight_map\"")
}

/// Reads an index and the shards beside it.
pub(crate) fn read(input: &Input, context: &Context) -> Result<Contents, Fault> {
    let Some(path) = &input.path else {
        return Err(Fault::Unsupported {
            what: "an index is read where its shards are, from a folder or an archive".to_owned(),
        });
    };
    let file = path
        .file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default();
    let index = Index::parse("", &file, &input.bytes, &context.limits)?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut faults = BTreeMap::new();
    let mut members = Vec::new();
    for shard in index.shards.keys() {
        match folder::contained(folder, shard) {
            Ok(path) => members.push(Member {
                path: shard.clone(),
                load: Load::File(path),
            }),
            Err(fault) => {
                faults.insert(shard.clone(), fault);
            }
        }
    }
    let mut contents = bundle::assemble_shards(format_of(&file), members, &index, context)?;
    // The index knew no better than "missing"; for names and links that lead elsewhere we do.
    for (shard, fault) in faults {
        if let Fault::PathEscape { what } = &fault
            && !names::escapes(&shard)
        {
            contents.find(FindingKind::PathEscape, what.clone());
        }
        let reason = fault.to_string();
        for skipped in contents
            .skipped
            .iter_mut()
            .filter(|skipped| index.shards[&shard].contains(&skipped.name))
        {
            skipped.reason.clone_from(&reason);
        }
    }
    Ok(contents)
}

fn format_of(file: &str) -> &'static str {
    if file.contains("safetensors") {
        "safetensors-index"
    } else {
        "torch-index"
    }
}

/// Which tensors each shard should hold.
#[derive(Debug)]
pub(crate) struct Index {
    file: String,
    /// By path inside the bundle.
    pub(crate) shards: BTreeMap<String, HashSet<String>>,
}

impl Index {
    /// `dir` is where the index lies inside its bundle.
    pub(crate) fn parse(
        dir: &str,
        file: &str,
        bytes: &[u8],
        limits: &Limits,
    ) -> Result<Self, Fault> {
        if bytes.len() as u64 > limits.header_bytes {
            return Err(Fault::Limit {
                what: format!("an index of {} bytes", bytes.len()),
            });
        }
        let json: Value = serde_json::from_slice(bytes).map_err(|e| Fault::BadHeader {
            what: format!("not JSON: {e}"),
        })?;
        let map = json.get("weight_map").and_then(Value::as_object);
        let map = map.ok_or_else(|| Fault::BadHeader {
            what: "an index has a `weight_map` of names to files".to_owned(),
        })?;
        let mut shards: BTreeMap<String, HashSet<String>> = BTreeMap::new();
        for (tensor, shard) in map {
            let shard = shard.as_str().ok_or_else(|| Fault::BadHeader {
                what: format!("`{tensor}` is not mapped to a file name"),
            })?;
            let path = if dir.is_empty() {
                shard.to_owned()
            } else {
                format!("{dir}/{shard}")
            };
            shards.entry(path).or_default().insert(tensor.clone());
        }
        Ok(Self {
            file: file.to_owned(),
            shards,
        })
    }

    /// Marks the index's shards as such, and says what the index and they disagree on.
    pub(crate) fn check(&self, parts: &mut [Part], contents: &mut Contents) {
        for (shard, promised) in &self.shards {
            let tamed = names::tamed(shard);
            let part = parts
                .iter_mut()
                .find(|part| part.path == tamed && !names::escapes(shard));
            let Some(part) = part else {
                self.absent(shard, promised, contents);
                continue;
            };
            part.nameless = true;
            let inner = &part.contents;
            let held: HashSet<&str> = inner
                .entries
                .iter()
                .map(|entry| entry.name.as_str())
                .chain(inner.values.iter().map(|value| value.name.as_str()))
                .chain(inner.skipped.iter().map(|skipped| skipped.name.as_str()))
                .collect();
            let mut missing: Vec<&String> = promised
                .iter()
                .filter(|name| !held.contains(name.as_str()))
                .collect();
            missing.sort();
            for name in missing {
                contents.skip(
                    name,
                    Fault::Missing {
                        what: format!(
                            "the index `{}` promises it in `{shard}`, which has no such tensor",
                            self.file
                        ),
                    },
                );
            }
            let extra: Vec<&str> = inner
                .entries
                .iter()
                .map(|entry| entry.name.as_str())
                .filter(|name| !promised.contains(*name))
                .collect();
            if let Some(first) = extra.first() {
                let text = format!(
                    "`{shard}` holds {} tensors that `{}` does not name, `{first}` first",
                    extra.len(),
                    self.file
                );
                contents.find(FindingKind::Odd, text);
            }
        }
    }

    fn absent(&self, shard: &str, promised: &HashSet<String>, contents: &mut Contents) {
        if names::escapes(shard) {
            contents.find(
                FindingKind::PathEscape,
                format!(
                    "`{}` names `{shard}`, outside its folder; not opened",
                    self.file
                ),
            );
        }
        // A shard that is there and unreadable has already said why.
        let why = contents
            .skipped
            .iter()
            .find(|skipped| skipped.name == shard)
            .map(|skipped| skipped.reason.clone());
        let mut promised: Vec<&String> = promised.iter().collect();
        promised.sort();
        for name in promised {
            let what = match &why {
                Some(why) => format!("its shard `{shard}` cannot be read: {why}"),
                None => format!("the file `{shard}`, its shard"),
            };
            contents.skip(name, Fault::Missing { what });
        }
    }
}
